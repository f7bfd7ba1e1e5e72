"""A smaller vocabulary: the same ids one to one, the same logits, every text."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.tokenizers import cuts_as_released
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm
from tests.support.languages import (
    CASES,
    LENGTH,
    SIZE,
    TEXTS,
    VOCABULARY,
    ids_of,
    lm_of,
    narrow,
    wide,
)


def tokenizers_of(name):
    return wide(name).preprocessor.tokenizer, narrow(name).preprocessor.tokenizer


def new_ids(name):
    """Old id -> new id, by the tokens' own names."""
    old, new = tokenizers_of(name)
    names = list(new.get_vocabulary())
    return {old.token_to_id(token): new.token_to_id(token) for token in names}


def logits(lm, ids):
    inputs = {"token_ids": np.array([ids], "int32")}
    inputs["padding_mask"] = np.ones_like(inputs["token_ids"])
    return to_numpy(lm(inputs, training=False))[0]


@pytest.mark.parametrize("name", CASES)
class TestEach:
    def test_every_text_decodes_to_itself(self, name):
        old, new = tokenizers_of(name)
        assert new.vocabulary_size() == SIZE < old.vocabulary_size() <= VOCABULARY
        for text in TEXTS:
            assert old.detokenize(ids_of(old, text)) == text
            found = ids_of(new, text)
            assert new.detokenize(found) == text and max(found) < SIZE

    def test_ids_one_to_one(self, name):
        """Where kept tokens alone are used; shorter texts, so that some do."""
        (old, new), places = tokenizers_of(name), new_ids(name)
        assert sorted(places.values()) == list(range(SIZE))
        assert sorted(places) == [k for k, _ in sorted(places.items(), key=_second)]
        seen = 0
        for text in TEXTS:
            for end in range(1, len(text)):
                part = text[max(0, end - 8) : end]
                ids = ids_of(old, part)
                if places.keys() >= {*ids}:
                    seen += len(ids) < len(part.encode())
                    assert ids_of(new, part) == [places[i] for i in ids]
        assert seen > 100

    def test_special_tokens(self, name):
        (old, new), places = tokenizers_of(name), new_ids(name)
        for attribute in ("start_token_id", "end_token_id", "pad_token_id"):
            before, after = (getattr(t, attribute) for t in (old, new))
            assert after == (None if before is None else places[before])
        assert {*old.special_tokens} == {*new.special_tokens}
        assert cuts_as_released(new) == cuts_as_released(old) == (name == "cut")

    def test_logits(self, name):
        """To the last bit: each is a sum of its own, in the same order."""
        places = new_ids(name)
        ids = np.random.default_rng(0).permutation(list(places))[:LENGTH]
        before = logits(wide(name), ids)[:, list(places)]
        after = logits(narrow(name), [places[i] for i in ids])
        after = after[:, list(places.values())]
        np.testing.assert_array_equal(after, before)

    def test_the_model_is_stock_and_generates(self, name):
        lm, small = wide(name), narrow(name)
        assert type(small) is type(lm) and small.backbone.vocabulary_size == SIZE
        assert lm.backbone.vocabulary_size == VOCABULARY + 4
        assert lm.preprocessor is not small.preprocessor
        assert small.preprocessor.sequence_length == LENGTH
        row = lm.backbone.hidden_dim
        matrices = 1 if CASES[name][2] else 2
        gone = (VOCABULARY + 4 - SIZE) * row * matrices
        assert lm.count_params() - small.count_params() == gone


def _second(pair):
    return pair[1]


def test_the_most_used_tokens_stay():
    """With those that they are merged from, and no others of those that are used."""
    old, new = tokenizers_of("llama3 tied")
    counts = np.zeros(VOCABULARY + 4, int)
    for text in TEXTS[:6]:
        np.add.at(counts, ids_of(old, text), 1)
    parts = {p for m in new.merges if "#" not in m for p in m.split(" ")}
    merged = [t for t in old.vocabulary if len(t) > 1 and t not in old.special_tokens]
    count = {token: counts[old.vocabulary[token]] for token in merged}
    gone = [count[token] for token in merged if token not in new.vocabulary]
    # The last one's parts may be all that there was room for.
    last = [count[t] for t in merged if t in new.vocabulary and t not in parts]
    assert max(gone) <= min(n for n in last if n)


def test_token_ids_count_as_texts_do():
    lm = wide("llama3 tied")
    x, y, _ = lm.preprocessor(list(TEXTS[:6]), sequence_length=200)
    small = ki.shrink(
        lm, {"vocabulary": SIZE}, ({k: to_numpy(v) for k, v in x.items()}, y)
    )
    other = ki.shrink(lm, {"vocabulary": SIZE}, iter(TEXTS[:6]))
    # The start and end tokens stay in any case.
    for model in (small, other):
        found = model.preprocessor.tokenizer.vocabulary
        assert found == narrow("llama3 tied").preprocessor.tokenizer.vocabulary


@pytest.mark.parametrize("texts", [True, False])
def test_with_other_axes_in_one_call(texts):
    """As one after another: data are read with the ids of the wide model."""
    lm = wide("gemma")
    data = lm.preprocessor(list(TEXTS))
    targets = {"neurons": 0.5, "hidden_dim": 12}
    both = {**targets, "vocabulary": SIZE}
    small = ki.shrink(lm, both, TEXTS if texts else data, refit=True)
    apart = ki.shrink(
        ki.shrink(lm, targets, data, refit=True),
        {"vocabulary": SIZE},
        TEXTS if texts else data,
    )
    ids = np.arange(LENGTH)
    assert small.backbone.vocabulary_size == SIZE
    np.testing.assert_allclose(
        logits(small, ids), logits(apart, ids), rtol=0, atol=1e-5
    )


def test_compiled_as_the_model_is():
    lm = lm_of("llama3", "bpe")
    lm.compile(sampler="greedy")
    small = ki.shrink(lm, {"vocabulary": SIZE}, TEXTS)
    assert small.generate("for (int", max_length=10).startswith("for (int")


REFUSED = {
    "too few": ({"vocabulary": 200}, TEXTS, r"must be from 261 to 4.. tokens"),
    "too many": ({"vocabulary": VOCABULARY + 2}, TEXTS, "it has no more"),
    "more than rows": ({"vocabulary": 10**6}, TEXTS, "but 'llama3.*' has 424"),
    "no data": ({"vocabulary": 300}, None, "Give `data`: an iterable of strings"),
    "no text": ({"vocabulary": 300}, [], "hold no text"),
    "numbers": ({"vocabulary": 300}, np.ones((2, 3)), "a dict with 'token_ids'"),
    "some texts": ({"vocabulary": 300}, ["a", 1], "must be a string. Received: int"),
    "misspelled": ({"vocabulry": 300}, TEXTS, "Did you mean 'vocabulary'"),
    "texts for widths": ({"neurons": 0.5}, "a text", "`data` must be samples"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    targets, data, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        ki.shrink(wide("llama3"), targets, data)


def test_models_that_are_refused():
    lm = tiny_lm("llama3", num_layers=1)
    targets = {"vocabulary": 300}
    with pytest.raises(ValueError, match="no preprocessor with a tokenizer"):
        ki.shrink(lm, targets, TEXTS)
    with pytest.raises(ValueError, match="no causal language model"):
        ki.shrink(lm.backbone, targets, TEXTS)
    words = keras_hub.tokenizers.WordPieceTokenizer(["[UNK]", "a"])
    kind = keras_hub.models.CausalLMPreprocessor
    lm.preprocessor = kind(words)
    with pytest.raises(
        ValueError, match="does not support the vocabulary of a WordPieceTokenizer"
    ):
        ki.shrink(lm, targets, TEXTS)


def test_a_search_is_refused():
    lm = tiny_lm("llama3", num_layers=1)
    lm.compile(loss="mse")
    with pytest.raises(ValueError, match="Cut the vocabulary first"):
        ki.search(lm, (1, 2), target_parameters=9, kinds=["vocabulary"])


def test_unigram_is_not_supported_and_not_called_inexact():
    from sentencepiece import sentencepiece_model_pb2 as proto

    lm = lm_of("gemma", "sentencepiece")
    model = proto.ModelProto.FromString(lm.preprocessor.tokenizer.proto)
    model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM
    kind = type(lm.preprocessor.tokenizer)
    lm.preprocessor.tokenizer = kind(proto=model.SerializeToString())
    with pytest.raises(ValueError, match="does not support .* BPE models only"):
        ki.shrink(lm, {"vocabulary": SIZE}, TEXTS)


def test_reserved_pieces_go_and_characters_stay_without_bytes():
    from sentencepiece import sentencepiece_model_pb2 as proto

    from keras_idea.hub.vocabulary import tokens_of

    tokenizer = wide("gemma").preprocessor.tokenizer
    model = proto.ModelProto.FromString(tokenizer.proto)
    kinds = model.SentencePiece
    model.pieces.add(piece="<unused7>", type=kinds.USER_DEFINED)
    model.pieces.add(piece="<mark>", type=kinds.USER_DEFINED)
    made = type(tokenizer)(proto=model.SerializeToString())
    demanded = tokens_of(made).demanded
    assert "<unused7>" not in demanded and "<mark>" in demanded
    assert {"▁", "<0x00>", "<bos>"} <= demanded and "ü" not in demanded
    model.trainer_spec.byte_fallback = False
    left = [piece for piece in model.pieces if piece.type != kinds.BYTE]
    del model.pieces[:]
    model.pieces.extend(left)
    made = type(tokenizer)(proto=model.SerializeToString())
    demanded = tokens_of(made).demanded
    assert {p.piece for p in model.pieces if len(p.piece) == 1} <= demanded
