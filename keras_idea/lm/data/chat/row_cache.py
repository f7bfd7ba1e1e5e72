"""The cache of the rows that conversations fill: read, rendered, tokenized, written."""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from keras_idea.errors import TextError
from keras_idea.lm.data.chat.conversations import Conversation, read_conversations
from keras_idea.lm.data.chat.rows import coded, packed_rows, weighted_tokens
from keras_idea.lm.data.chat.templates import ChatTemplate, render
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.lm.data.text.sources import TextSource
from keras_idea.lm.data.text.vocabulary import Vocabulary, fingerprint_of
from keras_idea.lm.data.tokens.cache import FORMAT, INDEX, TokenCache, write_index
from keras_idea.lm.data.tokens.shards import ShardWriter, new_folder

#: What becomes of a conversation of more tokens than a row.
OnLong: TypeAlias = Literal["skip", "truncate", "refuse"]
ON_LONG: tuple[str, ...] = get_args(OnLong)
#: Which tokens the loss counts.
Counted: TypeAlias = Literal["responses", "all"]
COUNTED: tuple[str, ...] = get_args(Counted)

_SHARD_TOKENS = 1 << 26
# What the index says of the conversations, besides what any cache says.
_TALLIES = (
    "conversations",
    "tokens",
    "counted_tokens",
    "counted_bytes",
    "too_long",
    "left_out",
)


@dataclasses.dataclass(frozen=True)
class Rows:
    """What the rows of one part of the conversations are made of."""

    source: TextSource
    takes: Callable[[Conversation], bool]  # whether a conversation is of the part
    part: Any  # what decides that, JSON-serializable
    template: ChatTemplate
    vocabulary: Vocabulary
    token_bytes: np.ndarray  # of each id; none for the tokens of the template
    length: int
    counted: Counted
    on_long: OnLong

    def key(self) -> dict:
        """What the rows depend on, JSON-serializable."""
        return {
            "format": FORMAT,
            "rows of conversations": self.part,
            "source": self.source.key(),
            "template": dataclasses.asdict(self.template),
            "tokenizer": [self.vocabulary.fingerprint, self.vocabulary.end_id],
            "length": self.length,
            "counted": self.counted,
            "on_long": self.on_long,
        }


def row_cache(rows: Rows, folder: str | os.PathLike) -> TokenCache:
    """Opens the cache of a part's rows; the first time, makes it.

    Raises:
        TextError: if no conversation fits in a row, or the files change meanwhile.
    """
    key = rows.key()
    path = pathlib.Path(folder) / f"chat-{fingerprint_of(key)[:16]}"
    if path.is_dir():
        return TokenCache(path)
    size, padding = 2 * rows.vocabulary.vocabulary_size, _padding(rows.vocabulary)
    dtype = np.dtype("<u2" if size <= 1 << 16 else "<u4")
    log, tally = ReadLog(rows.source.on_bad), collections.Counter[str]()
    with new_folder(path) as temporary:
        writer = ShardWriter(temporary, dtype, _SHARD_TOKENS)
        try:
            found = _coded(rows, log, tally)
            for row in packed_rows(found, rows.length, padding):
                writer.write(row.astype(dtype))
            if not writer.tokens:
                raise TextError(_nothing(rows, log, tally))
            if rows.source.key() != key["source"]:
                raise TextError(
                    "The conversations changed while they were read. Start again when "
                    "they are complete."
                )
            # The last row predicts one token more.
            writer.write(np.array([padding], dtype))
            writer.close()
        finally:
            writer.abandon()
        index = {
            "format": FORMAT,
            "dtype": dtype.str,
            "vocabulary_size": size,
            "end_id": rows.vocabulary.end_id,
            "bad_records": dict(sorted(log.bad.items())),
            **{name: tally[name] for name in _TALLIES},
            "key": key,
            "shards": writer.shards,
        }
        write_index(temporary / INDEX, index)
    return TokenCache(path, "sizes")


def _padding(vocabulary: Vocabulary) -> int:
    """The coded token that fills a row: one that the loss does not count."""
    return 2 * (vocabulary.end_id or 0)


def _coded(
    rows: Rows, log: ReadLog, tally: collections.Counter[str]
) -> Iterator[np.ndarray]:
    """Each conversation that fits in a row, coded; counts what is met."""
    for conversation in filter(rows.takes, read_conversations(rows.source, log)):
        held = _control_token(conversation, rows.template)
        if held is not None:
            path, line = conversation.path, conversation.line
            log.reject("control_token", path, line, f"received: {held!r}")
            continue
        pieces = render(rows.template, conversation.messages)
        ids, counts = weighted_tokens(pieces, rows.vocabulary)
        if len(ids) > rows.length:
            tally["too_long"] += 1
            if rows.on_long == "refuse":
                raise TextError(_too_long(conversation, len(ids), rows.length))
            ids, counts = ids[: rows.length], counts[: rows.length]
            if rows.on_long == "skip" or not counts.any():
                tally["left_out"] += 1
                continue
        if rows.counted == "all":
            counts = np.arange(len(ids)) > 0
        tally["conversations"] += 1
        tally["tokens"] += len(ids)
        tally["counted_tokens"] += int(counts.sum())
        tally["counted_bytes"] += round(rows.token_bytes[ids[counts]].sum())
        yield coded(ids, counts)


def _control_token(conversation: Conversation, template: ChatTemplate) -> str | None:
    """The first token of a template that a message holds: some tokenizers obey it."""
    texts = [message.content for message in conversation.messages]
    held = (token for token in template.tokens if any(token in t for t in texts))
    return next(held, None)


def _too_long(conversation: Conversation, tokens: int, length: int) -> str:
    return (
        f"{conversation.path}, line {conversation.line}: the conversation is longer "
        f"than a row. Received: {tokens:,} tokens, with model.sequence_length="
        f"{length}. Set `model.sequence_length` to {tokens} or more, or "
        '`chat.on_long` to "skip" or "truncate".'
    )


def _nothing(rows: Rows, log: ReadLog, tally: collections.Counter[str]) -> str:
    cure = "Give more records, or set another `data.validation_fraction`"
    if tally["too_long"]:
        cure = "Set a larger `model.sequence_length`"
    return (
        f"There is no conversation {rows.part[0]}. Received: {log.summary()} in all, "
        f"{tally['too_long']:,} of this part longer than {rows.length:,} tokens. "
        f"{cure}."
    )
