"""What other callbacks of a `fit` may not do beside the one that prunes."""

import keras

from keras_idea.callbacks.prune.session import Session
from keras_idea.errors import ArgumentError
from keras_idea.keras_private.callbacks import initial_epoch, peers
from keras_idea.keras_private.optimizer_variables import apply_count, as_int, innermost
from keras_idea.keras_private.train_step import has_own_train_step

# Those of Keras that put earlier weights back, and what to do instead.
_RESTORING = {
    keras.callbacks.BackupAndRestore: (
        "Use keras_idea.Checkpoint, whose checkpoints know how wide the model was."
    ),
    keras.callbacks.SwapEMAWeights: (
        "Give the optimizer use_ema=True without it; the averages are taken over when "
        "training ends."
    ),
}
_CHECKPOINTS = (
    "Leave restore_best_weights off, and keep checkpoints: keras_idea.Checkpoint, or "
    "ModelCheckpoint with whole models (.keras)."
)


def check_peers(callback: keras.callbacks.Callback) -> None:
    """Refuses a second of ours, and callbacks that would put pruned neurons back."""
    for peer in peers(callback):
        if isinstance(peer, type(callback)) and peer is not callback:
            raise ArgumentError(
                "One `fit` takes one IdeaPruneCallback, which prunes all FFNs of the "
                "model. Received: two. For several widths one after another, call "
                "`fit` for each."
            )
        for kind, cure in _RESTORING.items():
            if isinstance(peer, kind):
                raise ArgumentError(_restores(kind.__name__, cure))
    _check_early_stopping(callback)


def _check_early_stopping(prune: keras.callbacks.Callback) -> None:
    """Refuses an EarlyStopping that would restore weights from before the narrowing.

    It keeps none before the end of its `start_from_epoch`: if pruning is done by then,
    with a batch left in which the model is narrowed, what it restores is narrow too.
    """
    for stop in _restoring_stops(prune):
        first = _first_safe_epoch(prune)
        epoch = max(stop.start_from_epoch, initial_epoch())
        if first is not None and epoch >= first:
            continue
        name = "EarlyStopping(restore_best_weights=True)"
        if first is not None and first < prune.params["epochs"]:
            name += f" with start_from_epoch={stop.start_from_epoch}"
            raise ArgumentError(_restores(name, f"Set start_from_epoch={first}."))
        raise ArgumentError(_restores(name, _CHECKPOINTS))


def check_kept_weights(
    prune: keras.callbacks.Callback, session: Session | None = None
) -> None:
    """Refuses to go on where an EarlyStopping keeps wide weights by now.

    In the midst of pruning the session knows that; without one it is about to narrow.
    """
    kept = any(stop.best_weights is not None for stop in _restoring_stops(prune))
    if kept and (session is None or session.wider_than_due()):
        name = "EarlyStopping(restore_best_weights=True)"
        raise ArgumentError(_restores(name, "Set a later start_from_epoch."))


def _restoring_stops(
    callback: keras.callbacks.Callback,
) -> list[keras.callbacks.EarlyStopping]:
    stops = [p for p in peers(callback) if isinstance(p, keras.callbacks.EarlyStopping)]
    return [stop for stop in stops if stop.restore_best_weights]


def _first_safe_epoch(prune: keras.callbacks.Callback) -> int | None:
    """The first epoch with a batch after the end of pruning; None: it is not known."""
    batches = (prune.params or {}).get("steps")
    if not batches or has_own_train_step(prune.model):
        return None
    optimizer = innermost(prune.model.optimizer)
    every = optimizer.gradient_accumulation_steps or 1
    # The call of the optimizer that ends the step after the last one of pruning.
    due = (prune.end_step + 1) * every - as_int(apply_count(optimizer))
    return initial_epoch() + max(-(-due // batches), 1) - 1


def _restores(name: str, cure: str) -> str:
    return (
        f"{name} puts weights of an earlier step back, so pruned neurons would become "
        f"active again. {cure}"
    )
