"""Where an export goes: written beside its place, moved there once it is checked."""

import contextlib
import dataclasses
import fnmatch
import os
import pathlib
from collections.abc import Iterator

from keras_idea import files
from keras_idea.errors import ExportRefused
from keras_idea.files import reserve
from keras_idea.lm.export.compare import Match


@dataclasses.dataclass(frozen=True)
class ExportKind:
    """What one kind of export leaves behind.

    Args:
        what: str, its name in messages.
        names: tuple of str, patterns of the entries of its folder; empty if it is
            a file.
        marks: tuple of str, entries that every such folder has.
        suffix: str, how the name of its file ends.
    """

    what: str
    names: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    suffix: str = ""


def check_target(
    path: str | os.PathLike, kind: ExportKind, overwrite: bool = False
) -> None:
    """Refuses a path that may not be written to.

    With `overwrite` an earlier export of this kind may be replaced; anything else that
    stands there is refused all the same.

    Raises:
        ExportRefused: if the path is taken, or cannot be; what to do about it.
    """
    if not str(path):
        raise ExportRefused(f"{kind.what} needs a path. Received: ''.")
    target = pathlib.Path(os.path.abspath(path))
    if not target.name.endswith(kind.suffix):
        raise ExportRefused(
            f"The name of {kind.what} ends in {kind.suffix!r}. Received: {str(path)!r}."
        )
    begin = f"{str(path)!r} cannot be made"
    files.check_place(target, ExportRefused, begin, "Give another path.")
    empty = target.is_dir() and kind.names and not any(target.iterdir())
    if empty or not target.exists():
        return
    foreign = _foreign(target, kind)
    if foreign:
        raise ExportRefused(
            f"{str(path)!r} is not {kind.what} ({foreign}) and is never overwritten. "
            "Give another path."
        )
    if not overwrite:
        raise ExportRefused(
            f"{str(path)!r} exists already. Give another path, or --overwrite to "
            "replace it."
        )


@contextlib.contextmanager
def replacing_target(path: str | os.PathLike, size: int = 0) -> Iterator[pathlib.Path]:
    """As `files.replacing`, of a path that `check_target` has checked.

    `size` bytes must be free for it.

    Raises:
        ExportRefused: if no folder can be made there, or there is no room.
    """
    with contextlib.ExitStack() as stack:
        try:
            temporary = stack.enter_context(files.replacing(path))
            if size:
                reserve(temporary.parent, size)
        except OSError as error:
            raise ExportRefused(f"{str(path)!r} cannot be written: {error}.") from None
        yield temporary


def _foreign(target: pathlib.Path, kind: ExportKind) -> str:
    """What stands there that no such export wrote, in words, or ''."""
    if not kind.names:
        return "it is a folder" if target.is_dir() else ""
    if not target.is_dir():
        return "it is a file"
    names = sorted(entry.name for entry in target.iterdir())
    for name in names:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in kind.names):
            return f"it holds {name!r}"
    missing = [mark for mark in kind.marks if mark not in names]
    return f"it has no {missing[0]!r}" if missing else ""


#: Of a model that takes text, but was saved or given without its tokenizer.
NO_TOKENIZER = (
    "Warning: there is no tokenizer in it, because the model has none: it can be given "
    "token ids alone. Set `lm.preprocessor` to the preprocessor of the preset that the "
    "model was made of, save it by `lm.save_to_preset`, and export that."
)


@dataclasses.dataclass(frozen=True)
class Export:
    """An export that was written.

    Args:
        path: path of its file or folder.
        what: str, what was written.
        match: `Match` or None, how it compares with the model; None: it was not
            checked, and a note says why.
        notes: tuple of str, what else there is to know.
    """

    path: str | os.PathLike
    what: str
    match: Match | None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Lines for the user."""
        result = "NOT CHECKED" if self.match is None else str(self.match)
        return "\n".join([f"{self.path}: {self.what}; {result}.", *self.notes])
