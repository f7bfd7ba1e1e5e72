"""What an export came to."""

import dataclasses
import os

from keras_idea.export.compare import Match


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
