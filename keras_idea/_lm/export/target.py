"""Where an export goes: written beside its place, moved there once it is checked."""

import dataclasses
import os
import pathlib

import keras

from keras_idea._keras.layers import walk
from keras_idea._surgery import find_groups
from keras_idea.errors import ExportRefused
from keras_idea.hub.compare import Match
from keras_idea.hub.families import is_backbone, is_task

#: A note of an export.
NO_TOKENIZER = (
    "It has no tokenizer, because the model has none. Set `lm.preprocessor` before you "
    "export it."
)


@dataclasses.dataclass(frozen=True)
class Export:
    """An export that was written."""

    path: str | os.PathLike
    what: str
    match: Match | str  # how it compares with the model
    notes: tuple[str, ...] = ()  # what else there is to know

    def __str__(self) -> str:
        """Lines for the user."""
        line = f"{self.path}: {self.what}; loaded back: {self.match}."
        return "\n".join([line, *self.notes])


def check_target(path: str | os.PathLike, suffix: str = "") -> None:
    """Rejects a path that exists, or has another ending.

    Raises:
        ExportRefused: what is wrong with the path.
    """
    target = pathlib.Path(os.path.abspath(path))
    if not str(path) or not target.name.endswith(suffix):
        raise ExportRefused(
            f"The path of an export ends in {suffix or 'a name'!r}. Received: "
            f"path={str(path)!r}. Give another path."
        )
    if target.exists():
        raise ExportRefused(
            f"{str(path)!r} exists already. Remove it, or give another path."
        )


def check_compacted(model: keras.Model) -> None:
    """Refuses what is no KerasHub model, has masked neurons, or is quantized."""
    name = f"{type(model).__name__} '{model.name}'"
    if not (is_task(model) or is_backbone(model)):
        raise ExportRefused(
            f"KerasHub's models can be exported. Received: {name}. Use a KerasHub "
            'model, in a run `hub = "llama3"`.'
        )
    for group in find_groups(model):
        if group.holds_state or group.width < group.hidden_dim:
            raise ExportRefused(
                f"{name} is not compact: {group.name} has {group.width} active "
                f"{group.units} of {group.hidden_dim}. Export what "
                "`keras_idea.compact(model)` returns."
            )
    for layer in walk(model):
        if getattr(layer, "quantization_mode", None) is not None:
            raise ExportRefused(
                f"'{layer.name}' of {name} is quantized. Export the model that was "
                "quantized."
            )
