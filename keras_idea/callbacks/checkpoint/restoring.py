"""What a checkpoint is put back from: checked first, then read."""

import json
import operator
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.callbacks.checkpoint.files import SavedCheckpoint
from keras_idea.callbacks.checkpoint.model_state import restore_state
from keras_idea.errors import ArgumentError, CheckpointError
from keras_idea.groups.kinds import KINDS


def check_identity(identity: Any) -> dict[str, Any]:
    """An identity as a checkpoint gives it back; refuses what JSON cannot hold."""
    what = "`identity` must be a dict that JSON can hold: numbers, texts and lists"
    if not isinstance(identity, Mapping):
        raise ArgumentError(f"{what}. Received: identity={identity!r}. Give a dict.")
    held: dict[str, Any] = {}
    for name, value in identity.items():
        try:
            entry = {name: value}
            held.update(json.loads(json.dumps(entry, default=operator.index)))
        except (TypeError, ValueError, RecursionError):
            raise ArgumentError(
                f"{what}. Received: identity[{name!r}], of type "
                f"{type(value).__name__}. Give it as a number or a text."
            ) from None
    return held


def check_stateful(stateful: Any) -> dict[str, Any]:
    """Refuses what is no dict of objects with `get_state` and `set_state`."""
    what = "`stateful` must be a dict of names to objects that hold state"
    if not isinstance(stateful, Mapping):
        raise ArgumentError(f"{what}. Received: stateful={stateful!r}. Give a dict.")
    for name, holder in stateful.items():
        for method in ("get_state", "set_state"):
            if not callable(getattr(holder, method, None)):
                raise ArgumentError(
                    f"{what}. Received: {name!r} is {type(holder).__name__}, without "
                    f"`{method}`. Give it that method, or leave it out."
                )
    return dict(stateful)


def restore_model(saved: SavedCheckpoint, model: keras.Model) -> None:
    """Puts a model, with its optimizer, into a saved state; refuses another model."""
    shapes = {
        name: saved.shape(name)
        for name in saved.names
        if name.startswith(("model/", "optimizer/", *(f"{kind}/" for kind in KINDS)))
    }
    try:
        facts, step = saved.facts["model"], saved.step
        restore_state(model, facts, shapes, saved.array, step)
    except ValueError as error:
        raise CheckpointError(f"{saved.folder.name}: {error}") from error


def check_same_run(
    saved: SavedCheckpoint, identity: dict, stateful: Collection[str]
) -> None:
    """Rejects a checkpoint of another identity or other stateful objects."""
    was = saved.facts["identity"]
    for name in [*was, *identity]:
        if was.get(name) != identity.get(name):
            raise CheckpointError(
                f"The checkpoints in {str(saved.folder.parent)!r} are of another "
                f"run: {name} was {was.get(name)!r} and is {identity.get(name)!r}. "
                "Set it back, or give another folder."
            )
    if saved.facts["stateful"] != sorted(stateful):
        raise CheckpointError(
            f"{saved.folder.name} holds the state of {saved.facts['stateful']}. "
            f"Received: stateful={sorted(stateful)}. Pass the same objects."
        )


def check_facts(saved: SavedCheckpoint) -> None:
    """Refuses facts that no `Checkpoint` has written, by the first that is wrong."""
    facts = saved.facts
    facts.setdefault("callbacks", [])  # earlier versions of the package wrote none
    kinds = {
        "epochs": int,
        "callbacks": list,
        "identity": dict,
        "stateful": list,
        "history": dict,
        "model": dict,
    }
    wrong = [name for name, kind in kinds.items() if type(facts.get(name)) is not kind]
    if not wrong and facts["epochs"] < 1:
        wrong = ["epochs"]
    if not wrong and not all(map(_is_memory, facts["callbacks"])):
        wrong = ["callbacks"]
    if wrong:
        raise CheckpointError(
            f"{saved.folder.name}: its manifest says {wrong[0]!r}: "
            f"{facts.get(wrong[0])!r}, which no checkpoint says. Delete "
            f"{str(saved.folder)!r}; the run resumes from the checkpoint before."
        )


def _is_memory(entry: object) -> bool:
    """Whether a callback remembers it, as `keras_callbacks.memories` tells it."""
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return False
    numbers = (value for name, value in entry.items() if name != "kind")
    return all(value is None or isinstance(value, (int, float)) for value in numbers)


def arrays_below(prefix: str, saved: SavedCheckpoint) -> dict[str, np.ndarray]:
    """The saved arrays whose names begin so, by the rest of their names."""
    names = [name for name in saved.names if name.startswith(prefix)]
    return {name.removeprefix(prefix): saved.array(name) for name in names}
