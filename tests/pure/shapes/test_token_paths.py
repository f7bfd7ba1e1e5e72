"""Tokens that stay, and what they are merged from: every word against the libraries."""

import itertools
import random

import pytest
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as proto

from keras_idea.hub.vocabulary import most_used

LETTERS = "abc"
WORDS = ["".join(w) for n in range(1, 8) for w in itertools.product(LETTERS, repeat=n)]


def random_merges(rng, count=14):
    """Merges in any order, as no training makes them: a part may come after its sum."""
    tokens, merges = list(LETTERS), []
    while len(merges) < count:
        pair = rng.choice(tokens), rng.choice(tokens)
        if pair not in merges and len(pair[0] + pair[1]) <= 6:
            merges.append(pair)
            tokens = sorted({*tokens, pair[0] + pair[1]})
    rng.shuffle(merges)
    return tokens, merges


def byte_pairs(tokens, merges):
    vocabulary = {token: i for i, token in enumerate(tokens)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    return lambda word: made.encode(word).tokens


def pieces(scores, kind=proto.TrainerSpec.BPE):
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", type=model.SentencePiece.UNKNOWN)
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.model_type = kind
    model.normalizer_spec.add_dummy_prefix = False
    made = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda word: made.encode(word, out_type=str)


def check(old, new, stay):
    """Where the old one uses kept tokens only, the new one makes the same."""
    held = 0
    for word in WORDS:
        expected = old(word)
        assert "".join(new(word)) == word
        if stay.issuperset(expected):
            held += 1
            assert new(word) == expected
    return held


@pytest.mark.parametrize("seed", range(8))
def test_byte_pairs(seed):
    rng = random.Random(seed)
    tokens, merges = random_merges(rng)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    counts = {token: rng.randrange(9) for token in tokens}
    size = rng.randrange(len(LETTERS), len(tokens))
    stay = most_used(tokens, counts, LETTERS, size, lambda a, b: ranks.get((a, b)))
    assert len(stay) == size and stay.issuperset(LETTERS)
    left = [(a, b) for a, b in merges if {a, b, a + b} <= stay]
    new = byte_pairs([t for t in tokens if t in stay], left)
    assert check(byte_pairs(tokens, merges), new, stay) >= len(LETTERS)


@pytest.mark.parametrize("seed", range(8))
def test_sentencepiece(seed):
    """Scores that are equal among them: then the first two are merged."""
    rng = random.Random(seed)
    tokens, _ = random_merges(rng)
    scores = {token: -float(rng.randrange(6)) for token in tokens}
    counts = {token: rng.randrange(9) for token in tokens}
    size = rng.randrange(len(LETTERS), len(tokens))

    def rank(a, b):
        return -scores[a + b] if a + b in scores else None

    stay = most_used(tokens, counts, LETTERS, size, rank)
    assert len(stay) == size
    new = pieces({t: s for t, s in scores.items() if t in stay})
    assert check(pieces(scores), new, stay) >= len(LETTERS)


def unigram(scores):
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(list(scores.items())))
    return lambda word: made.encode(word).tokens


def word_pieces(scores):
    both = [form + piece for form in ("", "##") for piece in scores]
    vocabulary = {piece: i for i, piece in enumerate([*both, "[UNK]"])}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    made = tokenizers.Tokenizer(model)
    return lambda word: [t.removeprefix("##") for t in made.encode(word).tokens]


# Of these any pieces may go but single characters: they need no parts.
WITHOUT_PARTS = {
    "unigram in sentencepiece": lambda scores: pieces(
        scores, proto.TrainerSpec.UNIGRAM
    ),
    "unigram in tokenizers": unigram,
    "word pieces": word_pieces,
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", WITHOUT_PARTS)
def test_kinds_that_keep_their_tokens_without_parts(name, seed):
    rng, made = random.Random(seed), WITHOUT_PARTS[name]
    scores = {token: -float(rng.randrange(1, 6)) for token in random_merges(rng)[0]}
    stay = {*LETTERS, *rng.sample(sorted(scores), len(scores) // 2)}
    new = made({token: s for token, s in scores.items() if token in stay})
    assert check(made(scores), new, stay) >= len(LETTERS)
