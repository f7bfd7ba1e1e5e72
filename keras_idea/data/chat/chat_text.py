"""Conversations before a vocabulary is chosen, and the cache of rows made of them."""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from keras_idea.data.chat.chat_corpus import ChatCorpus
from keras_idea.data.chat.conversations import Conversation, read_conversations
from keras_idea.data.chat.rows import coded, packed_rows, token_ids, weighted_tokens
from keras_idea.data.chat.templates import (
    TEMPLATES,
    ChatTemplate,
    family_template,
    render,
)
from keras_idea.data.text.held_out import name_hash
from keras_idea.data.text.records import ReadLog
from keras_idea.data.text.sources import TextSource
from keras_idea.data.text.vocabulary import Vocabulary, fingerprint_of
from keras_idea.data.tokens.cache import FORMAT, INDEX, TokenCache, write_index
from keras_idea.data.tokens.shards import ShardWriter, new_folder
from keras_idea.errors import TextError
from keras_idea.extras import require
from keras_idea.validation import plural

#: What becomes of a conversation of more tokens than a row.
OnLong: TypeAlias = Literal["skip", "truncate", "refuse"]
ON_LONG: tuple[str, ...] = get_args(OnLong)
#: Which tokens the loss of training counts.
Counted: TypeAlias = Literal["responses", "all"]
COUNTED: tuple[str, ...] = get_args(Counted)
_SHARD_TOKENS = 1 << 26


@dataclasses.dataclass(frozen=True)
class ChatText:
    """Holds the conversations of a run; see `tokenized`.

    Args:
        source: `TextSource`. The JSON lines.
        cache: str or path. The folder of token caches.
        length: int. Tokens per row.
        template: `ChatTemplate`, str or None. A template, or the name of one. None:
            the one of `family`.
        family: str. The KerasHub family of the model, such as "Llama3".
        counted: str. "responses" or "all": what the loss of training counts. That of
            validation always counts responses alone.
        on_long: str. What becomes of a conversation longer than a row: "skip" (it is
            left out and counted), "truncate" or "refuse".
        validation: `TextSource` or None. The conversations held out. None holds out a
            part of `source`, by a hash of the prompts.
        validation_fraction: float in (0, 1). The share, if `validation` is None.
    """

    source: TextSource
    cache: str | os.PathLike
    length: int
    template: ChatTemplate | str | None = None
    family: str = ""
    counted: Counted = "responses"
    on_long: OnLong = "skip"
    validation: TextSource | None = None
    validation_fraction: float = 0.05

    def of_family(self, family: str) -> "ChatText":
        """The same conversations, for models of another KerasHub family."""
        return dataclasses.replace(self, family=family)

    def sample(self) -> bytes:
        """The messages, as bytes, to train a tokenizer on."""
        found = read_conversations(self.source, ReadLog(self.source.on_bad, 0))
        texts = [m.content for conversation in found for m in conversation.messages]
        return "\n".join(texts).encode()

    def tokenized(
        self, vocabulary: Vocabulary, start_id: int | None = None
    ) -> ChatCorpus:
        """The conversations as rows of tokens, from the cache or made now.

        `start_id` is not used: a template has its own begin.

        Raises:
            ArgumentError: if the tokenizer lacks a token of the template.
            BadRecordError, TextError: if a record or a file is bad.
            MissingPackage: if grain is not installed.
        """
        require("grain", "Training on chat records")
        template = self._template_for(vocabulary)
        token_bytes = np.array(vocabulary.token_bytes)
        # The tokens of a template stand for no text.
        token_bytes[list(token_ids(template.tokens, vocabulary).values())] = 0
        train, held_out = (
            self._rows(part, template, vocabulary, token_bytes)
            for part in ("train", "validation")
        )
        return ChatCorpus(
            train.part(0, len(train)),
            held_out.part(0, len(held_out)),
            self._description(train, held_out),
            token_bytes,
            counted_tokens=train.index["counted_tokens"],
            counted_bytes=train.index["counted_bytes"],
        )

    def _template_for(self, vocabulary: Vocabulary) -> ChatTemplate:
        if isinstance(self.template, ChatTemplate):
            return self.template
        every = {token for row in TEMPLATES.values() for token in row.tokens}
        known = token_ids(every, vocabulary)
        return TEMPLATES[self.template or family_template(self.family, known)]

    def _rows(
        self,
        part: str,
        template: ChatTemplate,
        vocabulary: Vocabulary,
        token_bytes: np.ndarray,
    ) -> TokenCache:
        """The cache of one part's rows, opened or made."""
        source = self.source if part == "train" else (self.validation or self.source)
        counted = self.counted if part == "train" else "responses"
        key = {
            "format": FORMAT,
            "chat": part,
            "source": source.key(),
            "held_out": 0 if self.validation else self.validation_fraction,
            "tokenizer": [vocabulary.fingerprint, vocabulary.end_id],
            "template": dataclasses.asdict(template),
            "length": self.length,
            "counted": counted,
            "on_long": self.on_long,
        }
        path = pathlib.Path(self.cache) / f"chat-{fingerprint_of(key)[:16]}"
        if path.is_dir():
            return TokenCache(path)
        size = 2 * vocabulary.vocabulary_size
        log, tally = ReadLog(source.on_bad), collections.Counter[str]()
        with new_folder(path) as temporary:
            dtype = np.dtype("<u2" if size <= 1 << 16 else "<u4")
            writer = ShardWriter(temporary, dtype, _SHARD_TOKENS)
            try:
                found = self._weighted(part, source, template, vocabulary, log, tally)
                padding = 2 * (vocabulary.end_id or 0)
                for row in packed_rows(
                    _counted(found, counted, token_bytes, tally),
                    self.length,
                    padding,
                ):
                    writer.write(row.astype(dtype))
                if not writer.tokens:
                    raise TextError(_none(part, log, tally, self))
                # The last row predicts one token more.
                writer.write(np.array([padding], dtype))
                writer.close()
            finally:
                writer.abandon()
            index = {
                "format": FORMAT,
                "dtype": dtype.str,
                "vocabulary_size": size,
                "end_id": vocabulary.end_id,
                "bad_records": dict(sorted(log.bad.items())),
                **{name: tally[name] for name in _TALLIES},
                "key": key,
                "shards": writer.shards,
            }
            write_index(temporary / INDEX, index)
        return TokenCache(path, "sizes")

    def _weighted(
        self,
        part: str,
        source: TextSource,
        template: ChatTemplate,
        vocabulary: Vocabulary,
        log: ReadLog,
        tally: collections.Counter[str],
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids of each conversation of a part that fits in a row, and what counts."""
        for conversation in read_conversations(source, log):
            if self.validation is None and part != self._part_of(conversation):
                continue
            pieces = render(template, conversation.messages)
            ids, counts = weighted_tokens(pieces, vocabulary)
            if len(ids) > self.length:
                tally["too_long"] += 1
                if self.on_long == "refuse":
                    raise TextError(_too_long(conversation, len(ids), self.length))
                ids, counts = ids[: self.length], counts[: self.length]
                if self.on_long == "skip" or not counts.any():
                    tally["left_out"] += 1
                    continue
            yield ids, counts

    def _part_of(self, conversation: Conversation) -> str:
        """The part of a conversation: equal prompts are in the same."""
        place = int.from_bytes(name_hash(conversation.prompt)) / 2.0**64
        return "validation" if place < self.validation_fraction else "train"

    def _description(self, train: TokenCache, held_out: TokenCache) -> str:
        names = ", ".join(str(path) for path in self.source.files()[:3])
        index = train.index
        long = [cache.index["too_long"] for cache in (train, held_out)]
        left_out = sum(cache.index["left_out"] for cache in (train, held_out))
        bad = sum(index["bad_records"].values())
        told = [
            f"{names}: {plural(index['conversations'], 'conversation')} to train on, "
            f"{held_out.index['conversations']:,} held out",
            f"{plural(bad, 'bad record')} left out" if bad else "",
            f"{sum(long):,} longer than {self.length:,} tokens, of which {left_out:,} "
            f"left out and {sum(long) - left_out:,} truncated"
            if sum(long)
            else "",
            f"the loss counts {index['counted_tokens'] / len(train):.0%} of the "
            f"training tokens ({self.counted})",
            f"{1 - index['tokens'] / len(train):.1%} is padding",
        ]
        return "; ".join(filter(None, told))


_TALLIES = (
    "conversations",
    "tokens",
    "counted_tokens",
    "counted_bytes",
    "too_long",
    "left_out",
)


def _counted(
    found: Iterator[tuple[np.ndarray, np.ndarray]],
    which: str,
    token_bytes: np.ndarray,
    tally: collections.Counter[str],
) -> Iterator[np.ndarray]:
    """Coded conversations, while it is counted how much of them the loss counts."""
    for ids, counts in found:
        if which == "all":
            counts = np.arange(len(ids)) > 0
        tally["conversations"] += 1
        tally["tokens"] += len(ids)
        tally["counted_tokens"] += int(counts.sum())
        tally["counted_bytes"] += round(token_bytes[ids[counts]].sum())
        yield coded(ids, counts)


def _too_long(conversation: Conversation, tokens: int, length: int) -> str:
    return (
        f"{conversation.path}, line {conversation.line}: the conversation is longer "
        f"than a row. Received: {tokens:,} tokens, with model.sequence_length="
        f"{length}. Set `model.sequence_length` to {tokens} or more, or "
        '`chat.on_long` to "skip" or "truncate".'
    )


def _none(
    part: str, log: ReadLog, tally: collections.Counter[str], text: ChatText
) -> str:
    where = "to train on" if part == "train" else "held out"
    cure = "Give more records"
    if tally["too_long"]:
        cure = "Set a larger `model.sequence_length`"
    elif text.validation is None:
        cure += ", or set another `data.validation_fraction`"
    return (
        f"There is no conversation {where}. Received: {log.summary()}, "
        f"{tally['too_long']:,} longer than {text.length:,} tokens. {cure}."
    )
