"""What the pruning callback refuses when `fit` begins, or finds in the course of it."""

import keras
from keras import ops

from keras_idea.callbacks.method_run import MethodRun
from keras_idea.callbacks.target import describe, target_widths
from keras_idea.keras_private.callbacks import peers
from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.keras_private.optimizer_variables import apply_count, as_int
from keras_idea.schedules.width import CubicWidth
from keras_idea.surgery.condition import check_trainable
from keras_idea.surgery.find import FFN, find_ffns
from keras_idea.surgery.optimizer_state import check_carriable
from keras_idea.surgery.pruner import NeuronPruner
from keras_idea.surgery.replicas import scope_of

# Keras's callbacks that put earlier weights back.
_RESTORING = (
    (
        keras.callbacks.EarlyStopping,
        lambda callback: callback.restore_best_weights,
        "EarlyStopping(restore_best_weights=True)",
        "Leave restore_best_weights off, and keep checkpoints: "
        "keras_idea.Checkpoint, or ModelCheckpoint with whole models (.keras).",
    ),
    (
        keras.callbacks.BackupAndRestore,
        lambda callback: True,
        "BackupAndRestore",
        "Use keras_idea.Checkpoint, whose checkpoints know how wide the model was.",
    ),
    (
        keras.callbacks.SwapEMAWeights,
        lambda callback: True,
        "SwapEMAWeights",
        "Give the optimizer use_ema=True without it; the averages are taken over when "
        "training ends.",
    ),
)


def is_built(model: keras.Model) -> bool:
    """Whether a model and its FFNs have all their variables."""
    ffns = find_ffns(model)
    return model.built and bool(ffns) and all(ffn.state.built for ffn in ffns)


def check_run(
    prune: keras.callbacks.Callback, model: keras.Model
) -> tuple[list[FFN], list[int]]:
    """Refuses, before the first step, what could only fail later.

    Args:
        prune: the pruning callback.
        model: its Keras model; an optimizer that is not built yet is built.

    Returns:
        List of the model's `FFN` handles, and list of the neurons that each keeps.

    Raises:
        ValueError: for what cannot be pruned, or not so.
    """
    if getattr(model, "optimizer", None) is not None and model.built:
        if not model.optimizer.built:
            with scope_of(model):
                model.optimizer.build(model.trainable_variables)
    ffns = check_trainable(model)
    budget = prune.budget
    targets = target_widths(prune.target_dim, budget, model, ffns, prune.round_to)
    if budget and (prune.params or {}).get("verbose"):
        print(describe(budget, model, ffns, max(targets)))
    for ffn, target in zip(ffns, targets, strict=True):
        if target > ffn.width:
            raise ValueError(
                "`target_dim` must be at most the width of each FFN. Received: a "
                f"target that keeps {target} neurons, but {ffn.name} has {ffn.width} "
                "alive."
            )
    if prune.compact != "off":
        _check_parts(ffns, targets)
    check_length(prune)
    if prune.compact != "off" and model.optimizer.built:
        check_carriable(model.optimizer, [c for ffn in ffns for c in ffn.cuts()])
    return ffns, targets


def _check_parts(ffns: list[FFN], targets: list[int]) -> None:
    """Refuses widths that could not be cut out in the end: the devices share them."""
    for ffn, target in zip(ffns, targets, strict=True):
        parts = ffn.device_parts
        if target % parts:
            below = target // parts * parts
            mend = " or ".join(str(n) for n in (below, below + parts) if n)
            raise ValueError(
                f"`target_dim` must be a multiple of {parts}, the devices that share "
                f"the neurons of {ffn.name}. Received: a target that keeps {target}. "
                f"Mend: {mend} (or round_to={parts} with a fraction)."
            )


def check_length(prune: keras.callbacks.Callback, first_epoch: int = 0) -> None:
    """Refuses pruning that would not end within the run, if its length is known.

    Args:
        prune: the pruning callback, its model and `params` set.
        first_epoch: int, the epoch that `fit` begins with. Default 0.

    Raises:
        ValueError: if the run is too short.
    """
    params = prune.params or {}
    batches, epochs = params.get("steps"), params.get("epochs")
    if batches is None or epochs is None:
        return
    epochs -= first_epoch
    optimizer = innermost(prune.model.optimizer)
    every = optimizer.gradient_accumulation_steps or 1
    last = (as_int(apply_count(optimizer)) + batches * epochs) // every
    begin, steps, end = prune.begin_step, prune.prune_steps, prune.end_step
    if end > last:
        reason = f"begin_step + prune_steps = {begin} + {steps} = "
        if end != begin + steps:
            reason = f"method '{prune.method.name}' decides at begin_step = "
        raise ValueError(
            f"Pruning must end within the run: {reason}{end}, but the optimizer "
            f"will have taken {last} steps when this `fit` ends. Train "
            "for longer, or lower begin_step or prune_steps."
        )


def check_peers(callback: keras.callbacks.Callback) -> None:
    """Refuses a second of ours, and callbacks that would put pruned neurons back.

    Args:
        callback: the pruning callback, in whose `on_train_begin` this is called.

    Raises:
        ValueError: naming the callback, and what to use in its place.
    """
    for peer in peers(callback):
        if isinstance(peer, type(callback)) and peer is not callback:
            raise ValueError(
                "One `fit` takes one IdeaPruneCallback, which prunes all FFNs of the "
                "model. Received: two. For several widths one after another, call "
                "`fit` for each."
            )
        for kind, restores, name, cure in _RESTORING:
            if isinstance(peer, kind) and restores(peer):
                raise ValueError(
                    f"{name} puts weights of an earlier step back, in which neurons "
                    f"live that have been pruned since, or cut out. {cure}"
                )


def check_end(run: MethodRun, step: int) -> None:
    """After the last step of pruning, no more neurons live than were to be kept.

    Args:
        run: `MethodRun`.
        step: int, the optimizer steps taken.

    Raises:
        RuntimeError: naming an FFN that is too wide.
    """
    wide = run.wider_than_due() if step > run.last_step else []
    if wide:
        raise RuntimeError(
            f"Pruning should have ended with step {run.last_step}, and after step "
            f"{step} {wide[0].name} still has {wide[0].width} neurons. Something has "
            "put pruned neurons back, or kept the masks from being made."
        )


def check_progress(
    model: keras.Model, pruner: NeuronPruner | None, idle_batches: int
) -> None:
    """What was counted, planned and seen of a run must be the same.

    Args:
        model: the Keras model that is fitted, its variables in sync.
        pruner: `NeuronPruner`, at work in it; if it is not, or None, nothing is seen.
        idle_batches: int, batches that went by without a step of the optimizer.

    Raises:
        RuntimeError: saying what was seen, and what causes it.
    """
    if pruner is None or not pruner.attached:
        return
    optimizer = innermost(model.optimizer)
    if idle_batches and model.optimizer is optimizer:  # loss scaling skips steps
        raise RuntimeError(
            f"{idle_batches} batches went by and the optimizer of model '{model.name}' "
            "took no step: its weights are trained by something else, which pruning "
            "cannot follow. Train them through the Keras optimizer that the model is "
            "compiled with (in a jax loop, write its state back before an epoch ends)."
        )
    steps = as_int(optimizer.iterations)
    taken = steps - pruner.start
    if pruner.steps != taken:
        raise RuntimeError(
            f"The optimizer of model '{model.name}' took {taken} steps since step "
            f"{pruner.start}, and pruning saw {pruner.steps} of them. Only "
            "`optimizer.apply`, `apply_gradients` or `stateless_apply` may take them; "
            "make functions that were traced before training began anew."
        )
    for ffn, schedule in zip(pruner.ffns, pruner.schedules, strict=True):
        _check_ffn_progress(ffn, schedule, steps, pruner)


def _check_ffn_progress(
    ffn: FFN, schedule: CubicWidth | None, steps: int, pruner: NeuronPruner
) -> None:
    probe = ffn.state.probe
    if probe is not None and probe.steps != steps:
        raise RuntimeError(
            f"The pruning method counted {probe.steps} backward passes through "
            f"{ffn.name} in {steps} optimizer steps, so what it measured is wrong. For "
            "such a method an FFN must be called exactly once in a step and lie on the "
            "way to the loss, and a custom train step must not clip or scale its "
            "gradients."
        )
    if schedule is None or not pruner.steps:
        return
    due, width = schedule(steps), ffn.width
    if width > due:
        raise RuntimeError(
            f"{ffn.name} should have {due} neurons alive after {steps} steps by its "
            f"schedule, and has {width}: the optimizer's steps do not reach it."
        )
    pruning = due < schedule.full_dim
    unknown = not ops.convert_to_numpy(ffn.scores).any()
    # One that begins as zeros has none in its first steps.
    if unknown and (pruning or pruner.steps >= 10):
        raise RuntimeError(
            f"No gradient has reached {ffn.name} in {pruner.steps} steps, so there is "
            "nothing to rank its neurons by: it lies off the way to the loss, or a "
            "custom train step leaves its kernels out. Leave it out of the model that "
            "is pruned (a GatedFFN in its place), or train it."
        )
