"""A smaller vocabulary: the same ids one to one, the same logits, every text."""

import numpy as np
import pytest

import keras_idea as ki
from keras_idea._shapes import vocabulary
from keras_idea.hub.tokenizers import cuts_as_released
from tests.support.helpers import to_numpy
from tests.support.languages import (
    CASES,
    LENGTH,
    SIZE,
    TEXTS,
    VOCABULARY,
    ids_of,
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


def _second(pair):
    return pair[1]


REFUSED = {
    "too few": ({"vocabulary": 200}, TEXTS, r"must be from 261 to 4.. tokens"),
    "some texts": ({"vocabulary": 300}, ["a", 1], "must be a string. Received: int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    targets, data, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        ki.shrink(wide("llama3"), targets, data)


def test_a_copy_of_other_logits_is_refused(monkeypatch):
    monkeypatch.setattr(vocabulary, "_take_along", lambda *_: None)
    with pytest.raises(ki.KerasIdeaError):
        ki.shrink(wide("llama3"), {"vocabulary": 300}, TEXTS)
