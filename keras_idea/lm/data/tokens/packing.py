"""Documents joined, an end-of-text token between them, and cut into windows."""

from collections.abc import Iterable, Sequence

import numpy as np

from keras_idea.errors import TextError
from keras_idea.lm.data.tokens.cache import TokenCache, TokenRange
from keras_idea.validation import check_int, plural


def join_documents(
    documents: Iterable[Sequence[int] | np.ndarray], end_id: int, dtype: str = "int32"
) -> np.ndarray:
    """Joins the token ids of documents, each followed by the token that ends it.

    Args:
        documents: sequence of int arrays `(tokens,)`. The documents.
        end_id: int. The token that ends a document.
        dtype: str. Dtype of the result. Defaults to "int32".

    Returns:
        Array `(tokens,)`, the length of all documents plus one per document.

    Example:
    >>> join_documents([[1, 2], [3]], end_id=0)
    array([1, 2, 0, 3, 0], dtype=int32)
    """
    parts = [part for ids in documents for part in (ids, (end_id,))]
    if not parts:
        return np.zeros(0, dtype)
    return np.concatenate([np.asarray(part, dtype) for part in parts])


class PackedWindows:
    """Cuts a stream of tokens into numbered windows, without padding.

    Window `i` is `tokens[i * length : (i + 1) * length + 1]`: its first `length` tokens
    are read, its last `length` are predicted. Each window begins with the last token of
    the window before, each token is read in one window and predicted in one, and
    documents continue from window to window.

    Args:
        tokens: `TokenCache`, `TokenRange` or int array `(tokens,)`. The stream.
        length: int >= 1. Tokens read per window.

    Attributes:
        left_out: int. Tokens at the end of the stream, fewer than `length`, that no
            window predicts.

    Raises:
        TextError: If there are not enough tokens for one window.

    Example:
    >>> windows = PackedWindows(np.arange(10), length=4)
    >>> len(windows), windows.left_out
    (2, 1)
    >>> windows[1]
    (array([4, 5, 6, 7], dtype=int32), array([5, 6, 7, 8], dtype=int32))
    """

    def __init__(
        self, tokens: TokenCache | TokenRange | np.ndarray, length: int
    ) -> None:
        self.tokens, self.length = tokens, check_int("length", length, minimum=1)
        count, self.left_out = divmod(len(tokens) - 1, self.length)
        if count < 1:
            raise TextError(
                f"The text is too short: it has {plural(len(tokens), 'token')}, and a "
                f"window of {length} needs {length + 1}. Give more text, or a smaller "
                "`length`."
            )
        self._count = count

    def __len__(self) -> int:
        return self._count

    def arrays(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns windows as `fit` takes them for `validation_data`.

        Args:
            limit: int or None. The most windows, evenly spread. Defaults to None: all.

        Returns:
            Pair of int32 arrays `(windows, length)`: tokens, and the token that follows
            each.
        """
        chosen = list(range(self._count))
        if limit is not None and check_int("limit", limit, minimum=1) < self._count:
            chosen = [i * self._count // limit for i in range(limit)]
        x, y = zip(*(self[i] for i in chosen), strict=True)
        return np.stack(x), np.stack(y)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Pair of int32 arrays `(length,)`: tokens, and the one that follows each."""
        if not 0 <= index < self._count:
            raise IndexError(f"window {index} of {self._count}")
        start = int(index) * self.length
        row = self.tokens[start : start + self.length + 1].astype("int32")
        return row[:-1], row[1:]
