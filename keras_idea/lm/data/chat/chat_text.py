"""Conversations of a run, before its vocabulary is chosen."""

import dataclasses
import functools
import os
from typing import TypeAlias

import numpy as np

from keras_idea.files import check_folder
from keras_idea.lm.data.chat.conversations import Conversation, read_conversations
from keras_idea.lm.data.chat.row_cache import Counted, OnLong, Rows, row_cache
from keras_idea.lm.data.chat.rows import ChatCorpus, token_ids
from keras_idea.lm.data.chat.templates import (
    TEMPLATES,
    ChatTemplate,
    family_template,
)
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.lm.data.text.sources import TextSource, name_hash
from keras_idea.lm.data.text.vocabulary import Vocabulary
from keras_idea.lm.data.tokens.cache import TokenCache
from keras_idea.lm.data.tokens.cached_corpus import CachedCorpus, Documents
from keras_idea.lm.data.tokens.corpus import Corpus
from keras_idea.lm.data.tokens.interfaces import START_EVERY
from keras_idea.validation import plural, require

TRAIN, HELD_OUT = "to train on", "held out"


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", check_folder("cache", self.cache))

    def of_family(self, family: str) -> "ChatText":
        """The same conversations, for models of another KerasHub family."""
        return dataclasses.replace(self, family=family)

    def sample(self) -> bytes:
        """The messages, as bytes, to train a tokenizer on."""
        found = read_conversations(self.source, ReadLog(self.source.on_bad, 0))
        texts = [m.content for conversation in found for m in conversation.messages]
        return "\n".join(texts).encode()

    def tokenized(
        self,
        vocabulary: Vocabulary,
        start_id: int | None = None,
        start_every: int = START_EVERY,
    ) -> ChatCorpus:
        """The conversations as rows of tokens, from the cache or made now.

        `start_id` and `start_every` are not used: a template has its own begin.

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
            row_cache(
                Rows(
                    source=source,
                    takes=functools.partial(self._is_of, part),
                    part=[part, 0 if self.validation else self.validation_fraction],
                    template=template,
                    vocabulary=vocabulary,
                    token_bytes=token_bytes,
                    length=self.length,
                    counted=counted,
                    on_long=self.on_long,
                ),
                self.cache,
            )
            for part, source, counted in self._parts()
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

    def _parts(self) -> list[tuple[str, TextSource, Counted]]:
        """Of each part its name, where it is, and what the loss counts of it."""
        return [
            (TRAIN, self.source, self.counted),
            (HELD_OUT, self.validation or self.source, "responses"),
        ]

    def _is_of(self, part: str, conversation: Conversation) -> bool:
        """Whether a conversation is of a part; equal prompts are of the same."""
        if self.validation is not None:
            return True
        place = int.from_bytes(name_hash(conversation.prompt)) / 2.0**64
        return (part == HELD_OUT) == (place < self.validation_fraction)

    def _description(self, train: TokenCache, held_out: TokenCache) -> str:
        names = ", ".join(str(path) for path in self.source.files()[:3])
        index = train.index
        long = [cache.index["too_long"] for cache in (train, held_out)]
        left_out = sum(cache.index["left_out"] for cache in (train, held_out))
        bad = sum(train.index["bad_records"].values())
        held = held_out.index["bad_records"]
        if self.validation is None:  # both have read all, and encoded their own
            held = {kind: n for kind, n in held.items() if kind == "control_token"}
        bad += sum(held.values())
        parts = [
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
        return "; ".join(filter(None, parts))


#: A text before a vocabulary is chosen, and as tokens to train on.
RawText: TypeAlias = Corpus | Documents | ChatText
TokenizedText: TypeAlias = Corpus | CachedCorpus
