"""What the pruning callback refuses when `fit` begins, or finds in the course of it."""

import itertools
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_idea import processes
from keras_idea.callbacks.prune.fractions import check_fractions
from keras_idea.callbacks.prune.messages import (
    warn_of_lost_backbones,
    warn_of_means,
    warn_of_nothing_to_prune,
)
from keras_idea.callbacks.prune.session import Session
from keras_idea.errors import ArgumentError, PruningStopped
from keras_idea.finding.find import FFN
from keras_idea.finding.targets import budget_line, target_name, target_widths
from keras_idea.groups.kinds import KINDS
from keras_idea.keras_private.callbacks import initial_epoch, warn_user
from keras_idea.keras_private.layers import (
    all_layers,
    has_lost_parameters,
    is_built,
    retrack_parameters,
    walk,
)
from keras_idea.keras_private.optimizer_variables import apply_count, as_int, innermost
from keras_idea.keras_private.train_step import has_own_train_step
from keras_idea.step.replicas import scope_of
from keras_idea.step.track import Track
from keras_idea.surgery.checks import (
    check_backbones,
    check_compiled,
    check_trainable,
)
from keras_idea.surgery.optimizer_state import check_carriable
from keras_idea.surgery.own_config import warn_of_stuck
from keras_idea.surgery.proof import prove
from keras_idea.surgery.width_in_code import check_width_in_code, stuck_blocks
from keras_idea.validation import multiples_beside


def has_variables(model: keras.Model) -> bool:
    """Whether a model and the layers in it have all their variables.

    A KerasHub task holds its preprocessor, which `fit` never builds.
    """
    return all(is_built(layer) or _prepares(layer) for layer in walk(model))


def _prepares(layer: keras.layers.Layer) -> bool:
    """Whether a layer makes a model's inputs: KerasHub's, which have no variables."""
    bases = {
        (base.__module__.split(".")[0], base.__name__) for base in type(layer).mro()
    }
    return ("keras_hub", "PreprocessingLayer") in bases


def check_run(
    prune: keras.callbacks.Callback, model: keras.Model, found: Sequence[FFN]
) -> list[tuple[FFN, int]]:
    """Refuses, before the first step, what could only fail later.

    `found` is what `find_groups` finds. An optimizer that is not built yet is built.

    Returns:
        List of (`FFN` handle, the neurons that it keeps), of those that are pruned.
    """
    check_compiled(model)
    if is_built(model) and not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    ffns = check_trainable(model, found, prune.groups, list(prune.targets))
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    budget = prune.budget
    targets = target_widths(prune.targets, budget, model, ffns, prune.round_to)
    if budget and (prune.params or {}).get("verbose") and processes.is_first():
        print(budget_line(budget, model, targets))
    for ffn, target in targets:
        check_scores(ffn)
        if target > ffn.width:
            raise ArgumentError(_too_wide(prune, ffn, target))
    start = as_int(model.optimizer.iterations)
    check_fractions(prune, targets, start)
    warn_of_nothing_to_prune(targets, began=start > prune.begin_step)
    check_backbones(model, targets)
    if prune.compact != "off":
        _check_parts(targets)
        check_width_in_code(model, ffns)
        warn_of_stuck(stuck_blocks(model, targets))
        warn_of_means(ffns)
        warn_of_lost_backbones(model, ffns)
    check_length(prune)
    _check_differs(prune, model)
    if prune.compact != "off" and model.optimizer.built:
        check_carriable(model.optimizer)
    prove(model, ffns)
    return targets


def _check_differs(prune: keras.callbacks.Callback, model: keras.Model) -> None:
    """Refuses gradients of a loss that is at its minimum: a copy follows its model."""
    distilled = isinstance(model, keras.distillation.Distiller)
    if not distilled or model.student_loss_weight or prune.method.name != "sensitivity":
        return
    pairs = list(itertools.zip_longest(model.teacher.weights, model.student.weights))
    if all(ours is not None for pair in pairs for ours in pair) and all(
        theirs.shape == ours.shape
        and np.array_equal(*map(keras.ops.convert_to_numpy, (theirs, ours)))
        for theirs, ours in pairs
    ):
        raise ArgumentError(
            "The student equals its teacher, and the labels have no weight, so the "
            'loss has no gradient by which "sensitivity" could rank neurons. Received: '
            "student_loss_weight=0. Give the labels a weight, such as "
            "ki.distiller(..., weight=0.5), or pass method=ki.methods.Activation(data)."
        )


def _too_wide(prune: keras.callbacks.Callback, ffn: FFN, target: int) -> str:
    given, kind = prune.targets[ffn.kind], KINDS[ffn.kind]
    if given is None:
        return (
            f"A budget must allow fewer {kind.units} than are left. Received: "
            f"{prune.budget}, which allows {target}, but {ffn.name} has {ffn.width} "
            f"left of {ffn.full_dim}. Lower it."
        )
    name = target_name(prune.targets, ffn.kind)
    cure = f"Give at most {ffn.width}, or a fraction such as 0.5."
    received = f"{name}={given}"
    if isinstance(given, float) and prune.round_to > 1 and kind.rounded:
        received += f", round_to={prune.round_to}"
        cure = f"Lower `round_to` or `{name}`."
    return (
        f"`{name}` must be at most the {kind.units} of each {kind.holder}. Received: "
        f"{received}, which keeps {target} {kind.units}, but {ffn.name} has "
        f"{ffn.width}. {cure}{_of_at_first(given, ffn)}"
    )


def _of_at_first(given: float, ffn: FFN) -> str:
    if not isinstance(given, float) or ffn.full_dim == ffn.width:
        return ""
    return f" A fraction counts from the width before any narrowing, {ffn.full_dim}."


def _check_parts(targets: list[tuple[FFN, int]]) -> None:
    """Refuses widths that could not be cut out in the end: the devices share them."""
    for ffn, target in targets:
        parts = ffn.device_parts
        if target % parts:
            keep = multiples_beside(target, parts)
            raise ArgumentError(
                f"A target must be a multiple of {parts}, the devices that share the "
                f"{ffn.units} of {ffn.name}. Received: a target that keeps "
                f"{target}. Keep {keep} (for neurons, round_to={parts} with a fraction "
                "does)."
            )


def check_length(prune: keras.callbacks.Callback) -> None:
    """Refuses pruning that would not end within the run, if its length is known.

    Where the model has a train step of its own, which may take several steps a batch,
    it is a warning.
    """
    params = prune.params or {}
    batches, epochs = params.get("steps"), params.get("epochs")
    if batches is None or epochs is None:
        return
    epochs -= initial_epoch()
    optimizer = innermost(prune.model.optimizer)
    every = optimizer.gradient_accumulation_steps or 1
    last = (as_int(apply_count(optimizer)) + batches * epochs) // every
    begin, steps, end = prune.begin_step, prune.prune_steps, prune.end_step
    if end <= last:
        return
    reason = f"begin_step + prune_steps = {begin} + {steps} = "
    if end != begin + steps:
        reason = f"method '{prune.method.name}' decides at begin_step = "
    message = (
        f"Pruning must end within the run: {reason}{end}, but the optimizer "
        f"will have taken {last} steps when this `fit` ends. Train "
        "for longer, or lower begin_step or prune_steps."
    )
    if not has_own_train_step(prune.model):
        raise ArgumentError(message)
    warn_user(f"{message} (Counted for a `train_step` of one step per batch.)")


def check_end(session: Session, step: int) -> None:
    """After the last step of pruning, no more neurons live than were to be kept."""
    wide = session.wider_than_due() if step > session.last_step else []
    if wide:
        raise PruningStopped(
            f"Pruning should have ended with step {session.last_step}, and after step "
            f"{step} {wide[0].name} still has {wide[0].width} {wide[0].units}. "
            "Something has put pruned ones back, or kept the masks from being made."
        )


_STEPS = (
    "Only `optimizer.apply`, `apply_gradients` or `stateless_apply` may take them; "
    "make functions that were traced before training began again."
)


def check_progress(model: keras.Model, session: Session | None, idle: bool) -> None:
    """What was counted, planned and seen of a run must be the same.

    While no pruner is at work nothing is seen. `idle`: the optimizer took no step in
    this epoch. No session: the first step was to begin it.
    """
    if session is None:
        _check_trained(model, idle)
        raise PruningStopped(
            f"Pruning saw no step of the optimizer of model '{model.name}', which took "
            f"some. {_STEPS}"
        )
    pruner = session.pruner
    if pruner is None or not pruner.attached:
        return
    optimizer = innermost(model.optimizer)
    if model.optimizer is optimizer:  # loss scaling skips steps
        _check_trained(model, idle)
    steps = as_int(optimizer.iterations)
    taken = steps - pruner.start
    if pruner.steps != taken:
        raise PruningStopped(
            f"The optimizer of model '{model.name}' took {taken} steps since step "
            f"{pruner.start}, and pruning saw {pruner.steps} of them. {_STEPS}"
        )
    for track in pruner.tracks:
        _check_track(track, steps, pruner.steps)


def _check_trained(model: keras.Model, idle: bool) -> None:
    """Refuses an optimizer that took no step."""
    if idle:
        raise PruningStopped(
            f"The optimizer of model '{model.name}' took no step in this epoch: its "
            "weights are trained by something else, which pruning cannot follow. Train "
            "them through the Keras optimizer that the model is compiled with (in a "
            "jax loop, write its state back before an epoch ends)."
        )


def _check_track(track: Track, steps: int, steps_seen: int) -> None:
    ffn, schedule = track.ffn, track.schedule
    probe = ffn.state.probe
    if probe is not None and probe.steps != steps:
        raise PruningStopped(
            f"The pruning method counted {probe.steps} backward passes through "
            f"{ffn.name} in {steps} optimizer steps, so what it measured is wrong. For "
            "such a method an FFN must be called exactly once in a step and lie on the "
            "way to the loss, and a custom train step must not clip or scale its "
            "gradients."
        )
    if not track.scheduled or not steps_seen:
        return
    due, width = schedule(steps), ffn.width
    pruning = due < schedule.full_dim
    check_scores(ffn)
    unknown = not ops.convert_to_numpy(ffn.scores).any()
    # One that begins as zeros has none in its first steps.
    if unknown and (pruning or steps_seen >= 10):
        raise PruningStopped(
            f"No finite gradient has reached {ffn.name} in {steps_seen} steps, so "
            f"there is nothing to rank its {ffn.units} by: it lies off the way "
            "to the loss, a custom train step leaves its kernels out, or every "
            "gradient was NaN. Leave it out (`groups`), or train it."
        )
    if width > due:
        raise PruningStopped(
            f"{ffn.name} should have {due} {ffn.units} after {steps} steps by "
            f"its schedule, and has {width}: the optimizer's steps do not reach it."
        )


def check_scores(ffn: FFN) -> None:
    """Refuses scores that rank no neurons: some are not finite."""
    bad = int((~np.isfinite(ops.convert_to_numpy(ffn.scores))).sum())
    if bad:
        raise ArgumentError(
            f"The scores of {ffn.name} cannot rank its {ffn.units}: some are NaN "
            f"or infinite. Received: {bad} such entries. Assign zeros to "
            "`scores`, and train for some steps before pruning begins."
        )
