"""Where an export goes: written beside its place, moved there once it is checked."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator

import keras

from keras_idea import files
from keras_idea.errors import ExportRefused
from keras_idea.hub.compare import Match
from keras_idea.keras_private.layers import walk
from keras_idea.surgery import find_groups


@dataclasses.dataclass(frozen=True)
class Export:
    """An export that was written.

    Attributes:
        path: path of its file or folder.
        what: str, what was written.
        match: `Match` or str, how it compares with the model.
        notes: tuple of str, what else there is to know.
    """

    path: str | os.PathLike
    what: str
    match: Match | str
    notes: tuple[str, ...] = ()

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


@contextlib.contextmanager
def replacing_target(path: str | os.PathLike, size: int) -> Iterator[pathlib.Path]:
    """As `files.replacing`, with `size` bytes free.

    Raises:
        ExportRefused: if nothing can be made there, or there is no room.
    """
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(files.replacing(path))
            files.reserve(temporary.parent, size)
        except OSError as error:
            raise ExportRefused(f"{str(path)!r} cannot be written: {error}.") from None
        yield temporary


def check_compacted(model: keras.Model) -> None:
    """Refuses a model with masked neurons, or one that is quantized."""
    for group in find_groups(model):
        if group.holds_state or group.width < group.hidden_dim:
            raise ExportRefused(
                f"{type(model).__name__} '{model.name}' is not compact: {group.name} "
                f"has {group.width} active {group.units} of {group.hidden_dim}. "
                "Export what `keras_idea.compact(model)` returns."
            )
    for layer in walk(model):
        if getattr(layer, "quantization_mode", None) is not None:
            raise ExportRefused(
                f"'{layer.name}' of {type(model).__name__} is quantized. Export the "
                "model that was quantized."
            )
