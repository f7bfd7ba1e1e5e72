"""KerasHub's tokenizers with some of their tokens.

A text that the old tokenizer makes kept tokens of becomes the same tokens by the new
one: its merges are some of the old ones, in the old order, and among them all that lead
to a kept token; see `merged_from`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from keras_idea._keras.hub_importers import byte_characters, python_tokenizer
from keras_idea._validation import require
from keras_idea.errors import ArgumentError
from keras_idea.hub.tokenizers import cut_as, cuts_as_released, mend_tokenizer_config

# SentencePiece's, for a space.
_SPACE = "▁"
# Places that nobody has trained.
_RESERVED = re.compile(r"<unused\d+>")


def tokens_of(tokenizer: Any) -> "Tokens":
    """The tokens of a KerasHub tokenizer; refuses one of another kind."""
    if getattr(tokenizer, "merges", None) is not None:
        return BytePairs(tokenizer)
    if getattr(tokenizer, "proto", None) is not None:
        return Pieces(tokenizer)
    raise ArgumentError(
        f"`shrink` does not support the vocabulary of a {type(tokenizer).__name__}: it "
        "cuts byte-level BPE and SentencePiece's BPE only. Leave 'vocabulary' out of "
        "`targets`."
    )


class BytePairs:
    """Of a `BytePairTokenizer`, one that cuts as its checkpoint's does among them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._spec: dict[str, Any] = {"added_tokens": []}
        self.ids = dict(tokenizer.vocabulary)
        if cuts_as_released(tokenizer):
            backend = python_tokenizer(tokenizer)
            self._spec = json.loads(backend.to_str())
            self.ids = {**backend.get_vocab(), **self.ids}
        pairs = map(_pair, tokenizer.merges)
        self._ranks = {pair: rank for rank, pair in enumerate(pairs) if pair}
        special = [*tokenizer.special_tokens, *(tokenizer.unsplittable_tokens or ())]
        special += [token["content"] for token in self._spec["added_tokens"]]
        self.demanded = {*byte_characters(), *special} & self.ids.keys()

    def rank(self, left: str, right: str) -> float | None:
        """The place of a merge in the list of merges."""
        return self._ranks.get((left, right))

    def smaller(self, ids: Mapping[str, int]) -> Any:
        """A tokenizer with the merges among these tokens only."""

        def among(merges: Iterable[Any]) -> list[Any]:
            parts = [(merge, _pair(merge)) for merge in merges]
            return [
                m for m, pair in parts if {*pair, "".join(pair)} - {""} <= ids.keys()
            ]

        mend_tokenizer_config(self._tokenizer)
        old, spec = self._tokenizer, self._spec
        vocabulary = {t: ids[t] for t in old.vocabulary if t in ids}
        config = {"vocabulary": vocabulary, "merges": among(old.merges)}
        made = type(old).from_config({**old.get_config(), **config})
        if cuts_as_released(old):
            import tokenizers

            model = spec["model"]
            known = {t: ids[t] for t in model["vocab"] if t in ids}
            cut = {**model, "vocab": known, "merges": among(model["merges"])}
            added = [{**t, "id": ids[t["content"]]} for t in spec["added_tokens"]]
            text = json.dumps({**spec, "model": cut, "added_tokens": added})
            cut_as(made, tokenizers.Tokenizer.from_str(text))
        return made


def _pair(merge: Any) -> tuple[str, ...]:
    """The two parts of a merge; nothing of a line that is no merge."""
    if not isinstance(merge, str):
        return tuple(merge)
    return () if "#version:" in merge else tuple(merge.split(" "))


class Pieces:
    """Of a `SentencePieceTokenizer`, whose model is of BPE."""

    def __init__(self, tokenizer: Any) -> None:
        name = "sentencepiece.sentencepiece_model_pb2"
        self._proto = require(name, "A smaller SentencePiece vocabulary")
        self._tokenizer = tokenizer
        self._model = self._proto.ModelProto.FromString(tokenizer.proto)
        trainer, kinds = self._model.trainer_spec, self._proto.ModelProto.SentencePiece
        if trainer.model_type != self._proto.TrainerSpec.BPE:
            raise ArgumentError(
                "`shrink` does not support the vocabulary of this SentencePiece "
                "tokenizer: of SentencePiece it cuts BPE models only. Leave "
                "'vocabulary' out of `targets`."
            )
        pieces = self._model.pieces
        self.ids = {piece.piece: index for index, piece in enumerate(pieces)}
        ordinary = (kinds.NORMAL, kinds.UNUSED)
        merged = (*ordinary, kinds.USER_DEFINED)
        self._scores = {p.piece: p.score for p in pieces if p.type in merged}
        own = {p.piece for p in pieces if p.type not in ordinary}
        own = {piece for piece in own if not _RESERVED.fullmatch(piece)}
        if not trainer.byte_fallback:
            own |= {piece for piece in self.ids if len(piece) == 1}
        self.demanded = {*own, *tokenizer.special_tokens, _SPACE} & self.ids.keys()

    def rank(self, left: str, right: str) -> float | None:
        """The less the higher the score of the piece that the two make."""
        score = self._scores.get(left + right)
        return None if score is None else -score

    def smaller(self, ids: Mapping[str, int]) -> Any:
        """A tokenizer with a model of these pieces, with their types and scores."""
        model = self._proto.ModelProto.FromString(self._tokenizer.proto)
        old = {index: piece for piece, index in self.ids.items()}
        places = {index: ids[piece] for index, piece in old.items() if piece in ids}
        stay = [self._model.pieces[i] for i in sorted(places, key=places.__getitem__)]
        del model.pieces[:]
        model.pieces.extend(stay)
        model.DiscardUnknownFields()  # tests of itself, of pieces that may be gone
        model.trainer_spec.vocab_size = len(stay)
        for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
            if model.trainer_spec.HasField(name):
                before = getattr(model.trainer_spec, name)
                setattr(model.trainer_spec, name, places.get(before, -1))
        config = self._tokenizer.get_config()
        return type(self._tokenizer).from_config(
            {**config, "proto": model.SerializeToString()}
        )


#: A tokenizer's tokens: `ids` by token, and those that are `demanded`, without which
#: some text could not be written, or the model not be told where one begins or ends.
Tokens: TypeAlias = BytePairs | Pieces

#: The rank of a merge of two neighbors, the lowest first; None: they are not merged.
Rank = Callable[[str, str], float | None]


def merged_from(token: str, rank: Rank) -> list[str]:
    """All that stands in a text while the characters of a token are merged into it.

    Its characters first; each part stands after what it is merged from; the token
    itself is the last. Where a text is merged into this token, no merge crosses its
    ends, so it is merged from the same parts, whatever stands beside it. A token that
    its characters are not merged into is alone in the list.

    Example:
    >>> ranks = {("a", "b"): 0, ("ab", "c"): 1, ("b", "c"): 2}
    >>> merged_from("abc", lambda a, b: ranks.get((a, b)))
    ['a', 'b', 'c', 'ab', 'abc']
    """
    parts = list(token)
    seen = list(parts)
    while len(parts) > 1:
        ranks = [rank(a, b) for a, b in zip(parts, parts[1:], strict=False)]
        known = [(r, place) for place, r in enumerate(ranks) if r is not None]
        if not known:
            return [token]
        _, place = min(known)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        seen.append(parts[place])
    return list(dict.fromkeys(seen))


def most_used(
    tokens: Iterable[str],
    counts: Mapping[str, int],
    kept: Iterable[str],
    size: int,
    rank: Rank,
) -> set[str]:
    """So many tokens: those in `kept`, then by their counts, each after its parts.

    `tokens` are all there are, in the order in which those of one count are taken.
    """
    everything = list(tokens)
    known, stay = set(everything), set(kept)
    for token in sorted(everything, key=lambda t: -counts.get(t, 0)):
        if token in stay:
            continue
        for part in merged_from(token, rank):
            if len(stay) == size:
                return stay
            if part in known:
                stay.add(part)
    return stay
