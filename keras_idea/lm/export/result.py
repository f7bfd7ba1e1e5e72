"""What an export came to."""

import dataclasses
import os

from keras_idea.lm.export.compare import Match

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
