"""What the rest of a `fit` may not do: other callbacks, and too few steps."""

from typing import Any

import keras

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.errors import ArgumentError
from keras_idea.keras_private.callbacks import initial_epoch, peers, warn_user
from keras_idea.keras_private.optimizer_variables import apply_count, as_int, innermost
from keras_idea.keras_private.train_step import has_own_train_step


def check_peers(callback: Any) -> None:
    """Refuses callbacks that change the width too, or put an earlier order back.

    `callback` is an `ElasticCallback`.
    """
    for peer in peers(callback):
        if isinstance(peer, IdeaPruneCallback):
            raise ArgumentError(
                "One `fit` takes an ElasticCallback or an IdeaPruneCallback, not both: "
                "the one trains neurons that the other takes away. Prune first, and "
                "train the widths of the narrow model in a second `fit`."
            )
        if isinstance(peer, type(callback)) and peer is not callback:
            raise ArgumentError(
                "One `fit` takes one ElasticCallback. Received: two. Give all widths "
                "to one."
            )
        if isinstance(peer, keras.callbacks.BackupAndRestore) and callback.begin_step:
            raise ArgumentError(
                "BackupAndRestore keeps neither the scores of the neurons nor whether "
                f"they are sorted. Received: begin_step={callback.begin_step}. Use "
                "keras_idea.Checkpoint."
            )


def check_restoring(callback: Any) -> None:
    """Refuses an EarlyStopping that would restore weights from before the sorting.

    The optimizer's state would be in the new order then. One that watches the loss of
    a width keeps no weights before there is one.
    """
    done, every = _calls(callback.model)
    if not callback.begin_step or done // every > callback.begin_step:
        return  # nothing will be sorted
    for stop in peers(callback):
        if not isinstance(stop, keras.callbacks.EarlyStopping):
            continue
        names = tuple(f"val_{name}_" for name in callback.widths)
        ours = [f"{name}_loss" for name in callback.widths]
        watches = stop.monitor in ours or stop.monitor.startswith(names)
        if not stop.restore_best_weights or watches:
            continue
        first = _epoch_of_sorting(callback)
        if first is not None and max(stop.start_from_epoch, initial_epoch()) >= first:
            continue
        cure = f"monitor='val_{next(iter(callback.widths))}_loss', mode='min'"
        if first is not None and first < callback.params["epochs"]:
            cure = f"start_from_epoch={first}, or {cure}"
        raise ArgumentError(
            "EarlyStopping(restore_best_weights=True) may put weights back of a step "
            "at which the neurons were not sorted yet. Received: "
            f"begin_step={callback.begin_step}, "
            f"start_from_epoch={stop.start_from_epoch}. Give it {cure}."
        )


def check_length(callback: Any) -> None:
    """Warns of a `fit` that ends before a step is at a width, if its length is known.

    It is no error, as another `fit` may follow.
    """
    params = callback.params or {}
    batches, epochs = params.get("steps"), params.get("epochs")
    if batches is None or epochs is None or has_own_train_step(callback.model):
        return
    done, every = _calls(callback.model)
    last = (done + batches * (epochs - initial_epoch())) // every
    if last <= callback.begin_step:
        warn_user(
            f"No step of this `fit` is at a width: begin_step={callback.begin_step}, "
            f"and the optimizer will have taken {last} steps when it ends. Lower "
            "begin_step, or train for longer."
        )


def _epoch_of_sorting(callback: Any) -> int | None:
    """The epoch in which the neurons will be sorted; None: it is not known."""
    batches = (callback.params or {}).get("steps")
    if not batches or has_own_train_step(callback.model):
        return None
    done, every = _calls(callback.model)
    return initial_epoch() + (callback.begin_step * every - done) // batches


def _calls(model: keras.Model) -> tuple[int, int]:
    """The calls of the optimizer so far, and how many make a step."""
    optimizer = innermost(model.optimizer)
    every = optimizer.gradient_accumulation_steps or 1
    return as_int(apply_count(optimizer)), every
