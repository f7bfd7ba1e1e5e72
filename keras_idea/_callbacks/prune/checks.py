"""What the pruning callback checks: the plan before the first step, and the guard.

The guard compares the schedule with the model at the end of each epoch, and before the
model is narrowed. So nothing is cut that was not pruned as planned.
"""

import keras
import numpy as np
from keras import ops

from keras_idea import _processes as processes
from keras_idea._callbacks.prune.run import PruningRun
from keras_idea._finding.find import FFN
from keras_idea._finding.targets import budget_line, target_name, target_widths
from keras_idea._graph.configs import check_configs
from keras_idea._keras.callbacks import peers
from keras_idea._keras.layers import (
    all_layers,
    has_lost_parameters,
    retrack_parameters,
)
from keras_idea._keras.models import has_own_train_step
from keras_idea._keras.optimizer_variables import apply_count, as_int, innermost
from keras_idea._step.replicas import scope_of
from keras_idea._step.track import Track
from keras_idea._surgery.checks import (
    check_compiled,
    check_trainable,
)
from keras_idea._surgery.optimizer_state import check_carriable
from keras_idea._surgery.trial import try_groups
from keras_idea.errors import ArgumentError, PruningStopped

# They restore weights in ways that the callback cannot follow.
_RESTORING = (keras.callbacks.BackupAndRestore, keras.callbacks.SwapEMAWeights)


def check_ready(prune: keras.callbacks.Callback, model: keras.Model) -> None:
    """Rejects a model that is not compiled or built; builds its optimizer."""
    check_compiled(model)
    for peer in peers(prune):
        if isinstance(peer, _RESTORING):
            raise ArgumentError(
                f"{type(peer).__name__} restores weights, so pruned units would become "
                "active again. Use keras_idea.Checkpoint, or leave it out."
            )
    if not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)


def plan_targets(
    prune: keras.callbacks.Callback, model: keras.Model, found: list[FFN]
) -> list[tuple[FFN, int]]:
    """Returns the groups to prune, each with the units to keep.

    `found` is what `find_groups` finds.

    Raises:
        ArgumentError: If the model cannot be pruned so.
    """
    ffns = check_trainable(model, found, prune.groups, list(prune.targets))
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    budget = prune.budget
    targets = target_widths(prune.targets, budget, model, ffns, prune.round_to)
    if budget and (prune.params or {}).get("verbose") and processes.is_first():
        print(budget_line(budget, model, targets))
    for ffn, target in targets:
        _check_target(prune, ffn, target)
    check_configs(model, targets, hub_only=prune.compact == "off")
    if prune.compact != "off":
        check_carriable(model.optimizer)
    _check_length(prune, model)
    _check_has_gradient(prune, model)
    try_groups(model, ffns)
    return targets


def _check_target(prune: keras.callbacks.Callback, ffn: FFN, target: int) -> None:
    given, parts = prune.targets[ffn.kind], ffn.device_parts
    name = f"{target_name(prune.targets, ffn.kind)}={given}"
    name = str(prune.budget) if given is None else name
    if target > ffn.width:
        raise ArgumentError(
            f"{name}, which keeps {target} {ffn.units}, but {ffn.name} has "
            f"{ffn.width}. Keep at most {ffn.width}."
        )
    if prune.compact != "off" and target % parts:
        raise ArgumentError(
            f"{name} keeps {target} {ffn.units} of {ffn.name}, which {parts} devices "
            f"share. Keep a multiple of {parts}."
        )


def _check_length(prune: keras.callbacks.Callback, model: keras.Model) -> None:
    """Rejects pruning that cannot end within the run, if its length is known."""
    params = prune.params or {}
    batches, epochs = params.get("steps"), params.get("epochs")
    if not batches or not epochs or has_own_train_step(model):
        return
    optimizer = innermost(model.optimizer)
    calls = as_int(apply_count(optimizer)) + batches * epochs
    last = calls // (optimizer.gradient_accumulation_steps or 1)
    if prune.end_step > last:
        raise ArgumentError(
            f"Pruning ends at step {prune.end_step}, and this `fit` at {last} steps. "
            "Train for longer, or lower begin_step or prune_steps."
        )


def _check_has_gradient(prune: keras.callbacks.Callback, model: keras.Model) -> None:
    """Rejects a loss at its minimum, whose gradients are rounding errors."""
    distilled = isinstance(model, keras.distillation.Distiller)
    if not distilled or model.student_loss_weight or prune.method.name != "sensitivity":
        return
    teacher, student = model.teacher.get_weights(), model.student.get_weights()
    if len(teacher) == len(student) and all(map(np.array_equal, teacher, student)):
        raise ArgumentError(
            "The student equals its teacher and the labels have no weight, so the loss "
            "has no gradient. Pass weight=0.5 to ki.distiller, or a method with `data`."
        )


def verify(model: keras.Model, run: PruningRun, idle: bool = False) -> None:
    """Stops a run that does not do what was planned.

    Args:
        model: keras.Model, in sync.
        run: the run of the model.
        idle: bool. Whether an epoch has passed without a step of the optimizer.

    Raises:
        PruningStopped: If the active units are not those of the schedule, or had no
            finite gradient. Nothing is cut.
    """
    optimizer, pruner = innermost(model.optimizer), run.pruner
    if not run.at_work or pruner is None:
        return
    if not pruner.attached:
        raise PruningStopped(
            f"Something ended the pruning of model '{model.name}' during `fit`. Pass "
            "one IdeaPruneCallback only, and do not compile the model there."
        )
    steps = as_int(optimizer.iterations)
    taken, seen = steps - pruner.start, pruner.steps
    # Loss scaling skips steps whose gradients overflow.
    if seen != taken or (idle and model.optimizer is optimizer):
        raise PruningStopped(
            f"The optimizer of model '{model.name}' took {taken} steps, and pruning "
            f"saw {seen}. Train the weights only through the optimizer that the model "
            "is compiled with, by functions that are traced after training began."
        )
    for track in run.tracks:
        _verify_track(track, steps, seen, run)


def _verify_track(track: Track, steps: int, seen: int, run: PruningRun) -> None:
    ffn, due = track.ffn, track.schedule.full_dim
    if track.scheduled and seen:
        due = track.schedule(steps)
        scores = ops.convert_to_numpy(ffn.scores)
        # One that begins as zeros has none in its first steps.
        unknown = not scores.any() and (due < track.schedule.full_dim or seen >= 10)
        if unknown or not np.isfinite(scores).all():
            raise PruningStopped(
                f"No finite gradient has reached {ffn.name} in {seen} steps, so its "
                f"{ffn.units} cannot be ranked. Train it, or leave it out (`groups`)."
            )
    elif steps > run.end_step and run.due_step > steps:
        due = track.target_dim
    if ffn.width > due:
        raise PruningStopped(
            f"{ffn.name} should have {due} {ffn.units} after {steps} steps, and has "
            f"{ffn.width}: the optimizer's steps do not reach it."
        )
    if seen and _has_revived(ffn):
        raise PruningStopped(
            f"Pruned {ffn.units} of {ffn.name} have weights again: another optimizer "
            "or callback changes them. Leave it out (`groups`), or remove what does."
        )


def _has_revived(ffn: FFN) -> bool:
    """Whether weights of pruned units are not zero."""
    mask = ffn.mask.value
    if ops.all(mask):
        return False
    # Entries that belong to no unit of this group count as active.
    return any(
        bool(ops.any(ops.where(cut.spread(mask, 1) > 0, 0, cut.variable.value)))
        for cut in ffn.kernel_cuts()
    )
