"""Rows of whole conversations, and which of their tokens the loss counts.

A stream keeps both in one number per token: twice the id, plus 1 if the loss counts
it. So the shards, the windows and the batches of any text serve chat records too.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.lm.data.chat.templates import END, Piece
from keras_idea.lm.data.text.vocabulary import Vocabulary
from keras_idea.lm.data.tokens.cached_corpus import CachedCorpus
from keras_idea.lm.data.tokens.interfaces import Batch

# Rows that are filled at the same time; more of them leave less padding.
_OPEN = 64


def weighted_tokens(
    pieces: Sequence[Piece], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids of a rendered conversation, and which of them the loss counts.

    Text between two tokens of the template is tokenized as a whole. If a token holds
    the end of a prompt and the begin of a response, the loss counts it. Never does it
    count the first token, which nothing predicts.

    Returns:
        Pair of arrays `(tokens,)`: int32 ids, and bools.

    Example:
    >>> from keras_idea.data import byte_vocabulary
    >>> pieces = [Piece("a", False, False), Piece("b", False, True)]
    >>> weighted_tokens(pieces, byte_vocabulary())
    (array([97, 98], dtype=int32), array([False,  True]))
    """
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    run: list[Piece] = []
    for piece in pieces:
        if not piece.is_token:
            run.append(piece)
            continue
        parts.append(_of_text(run, vocabulary))
        parts.append((np.array([_id_of(piece, vocabulary)]), np.array([piece.counts])))
        run = []
    parts.append(_of_text(run, vocabulary))
    ids, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    counts[:1] = False
    return ids.astype("int32"), counts.astype(bool)


def _of_text(
    run: Sequence[Piece], vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """As `weighted_tokens`, of pieces of text."""
    text = "".join(piece.text for piece in run)
    skipped = int(text.startswith(" ") and _adds_space(vocabulary))
    ids = np.asarray(vocabulary.encode(text[skipped:]) if text else [], "int32")
    counts = np.zeros(len(ids), bool)
    place = 0
    for piece in run:
        begin = text[skipped : max(place, skipped)]
        # Where the text before the piece ends: the tokens that it shares with it.
        counts[_shared(ids, vocabulary.encode(begin) if begin else []) :] = piece.counts
        place += len(piece.text)
    return ids, counts


def _shared(ids: np.ndarray, others: Any) -> int:
    """How many tokens two texts have in common at their begin."""
    most = min(len(ids), len(others))
    same = ids[:most] == np.asarray(others, "int32")[:most]
    return most if same.all() else int(np.argmin(same))


def _adds_space(vocabulary: Vocabulary) -> bool:
    """Whether the tokenizer puts a space before a text, as some SentencePiece do."""
    return bool(vocabulary.token_bytes[vocabulary.encode("a")].sum() > 1)


def token_ids(tokens: Iterable[str], vocabulary: Vocabulary) -> dict[str, int]:
    """Id of each of the tokens that a vocabulary has."""
    look_up = vocabulary.token_id
    ids = {name: look_up(name) for name in tokens} if look_up is not None else {}
    ids[END] = vocabulary.end_id
    return {name: number for name, number in ids.items() if number is not None}


def _id_of(piece: Piece, vocabulary: Vocabulary) -> int:
    ids = token_ids([piece.text], vocabulary)
    if piece.text not in ids:
        raise ArgumentError(
            f"The chat template needs the token {piece.text!r}, which the tokenizer "
            "does not have. Received: a tokenizer of "
            f"{vocabulary.vocabulary_size:,} tokens. Set `chat.template` to the one "
            "that the model was tuned with."
        )
    return ids[piece.text]


def packed_rows(
    conversations: Iterable[np.ndarray], length: int, padding: int
) -> Iterator[np.ndarray]:
    """Arrays `(length,)` of whole conversations, the rest of each row `padding`.

    A conversation goes into the fullest of the open rows that has room for it. It must
    not be longer than a row.

    Example:
    >>> arrays = [np.full(size, size) for size in (3, 4, 2)]
    >>> [row.tolist() for row in packed_rows(arrays, 5, padding=0)]
    [[3, 3, 3, 2, 2], [4, 4, 4, 4, 0]]
    """
    rows: list[list[np.ndarray]] = []
    sizes: list[int] = []
    for ids in conversations:
        fit = [i for i, size in enumerate(sizes) if size + len(ids) <= length]
        if fit:
            best = max(fit, key=lambda i: sizes[i])
        else:
            if len(rows) == _OPEN:
                fullest = max(range(_OPEN), key=lambda i: sizes[i])
                yield _padded(rows.pop(fullest), length, padding)
                sizes.pop(fullest)
            rows.append([])
            sizes.append(0)
            best = len(rows) - 1
        rows[best].append(ids)
        sizes[best] += len(ids)
    for row in rows:
        yield _padded(row, length, padding)


def _padded(row: Sequence[np.ndarray], length: int, padding: int) -> np.ndarray:
    ids = np.concatenate(row)
    return np.pad(ids, (0, length - len(ids)), constant_values=padding)


def coded(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Ids and whether the loss counts them, as one int per token."""
    return 2 * ids + counts


def decoded(batch: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """A batch of coded tokens as `fit` takes it.

    Returns:
        Triple of arrays `(batch_size, length)`: int32 tokens, the token that follows
        each, and the float32 weight of that one in the loss: 0 or 1.

    Example:
    >>> decoded((np.array([[14, 16]]), np.array([[16, 19]])))
    (array([[7, 8]]), array([[8, 9]]), array([[0., 1.]], dtype=float32))
    """
    x, y = batch
    return x >> 1, y >> 1, (y & 1).astype("float32")


@dataclasses.dataclass(frozen=True)
class ChatCorpus(CachedCorpus):
    """Holds the rows of conversations, as `CachedCorpus` holds windows of a text.

    Its batches have a third array: the weight of each predicted token in the loss.

    Args:
        counted_tokens: int. Training tokens that the loss counts.
        counted_bytes: int. The bytes of text that they stand for.
    """

    counted_tokens: int = 0
    counted_bytes: int = 0

    @property
    def counted(self) -> float:
        """float, the share of the training tokens that the loss counts."""
        return self.counted_tokens / (len(self.train) - 1)

    def train_bytes_per_token(self) -> float:
        """Returns the mean bytes per training token that the loss counts."""
        return self.counted_bytes / self.counted_tokens

    def check_length(self, length: int) -> None:
        """Raises an error for another length: it would split conversations."""
        rows = self.train.cache.index["key"]["length"]
        if length != rows:
            raise ArgumentError(
                f"`length` must be {rows}, the tokens of a row: another one splits "
                f"conversations. Received: length={length!r}. Set "
                f"`ChatText(length={length!r})` instead."
            )
        super().check_length(length)

    def validation_windows(self, *, length: int, limit: int | None = None) -> Batch:
        """Returns held-out rows, and their weights."""
        self.check_length(length)
        return decoded(super().validation_windows(length=length, limit=limit))

    def _with_starts(self, step: int, batch: Batch, first_row: int = 0) -> Batch:
        self.check_length(batch[0].shape[1])
        return decoded(batch)  # a template has its own begin
