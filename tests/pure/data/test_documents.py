"""Documents as a run reads them: what is held out, and what each step is given."""

import itertools

import numpy as np
import pytest

from keras_idea.data import Documents, TextSource, byte_vocabulary
from keras_idea.errors import TextError
from tests.support.text_files import jsonl, write

TEXTS = [f"{i * 87_178_291_199 % 10**11:011}" for i in range(36)]
TOKENS = np.array([i for text in TEXTS for i in (*text.encode(), 256)])


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write(folder, {"a.jsonl": jsonl(TEXTS), "held-out.jsonl": jsonl(TEXTS[:5])})
    return Documents(TextSource(folder / "a.jsonl"), folder / "cache")


@pytest.fixture(scope="module")
def corpus(documents):
    return documents.tokenized(byte_vocabulary(end=True), start_id=7)


def test_the_end_is_held_out(corpus):
    cut = 432 - 22  # a twentieth
    assert len(TOKENS) == 432
    np.testing.assert_array_equal(corpus.train[:], TOKENS[:cut])
    np.testing.assert_array_equal(corpus.validation[:], TOKENS[cut:])
    x, y = corpus.validation_windows(length=4)
    np.testing.assert_array_equal(x, TOKENS[cut : cut + 20].reshape(5, 4))
    np.testing.assert_array_equal(y, TOKENS[cut + 1 : cut + 21].reshape(5, 4))


def test_others_are_held_out(documents):
    path = documents.source.paths[0].with_name("held-out.jsonl")
    both = Documents(documents.source, documents.cache, TextSource(path))
    corpus = both.tokenized(byte_vocabulary(end=True))
    np.testing.assert_array_equal(corpus.train[:], TOKENS)
    np.testing.assert_array_equal(corpus.validation[:], TOKENS[: 5 * 12])


@pytest.mark.parametrize(
    "start, stop", [(0, 9), (3, None), (-5, None), (5, 2), (8, 99)]
)
def test_a_part_is_sliced_as_an_array(corpus, start, stop):
    part, expected = corpus.train.cache.part(10, 60), TOKENS[10:60]
    assert len(part) == 50
    np.testing.assert_array_equal(part[start:stop], expected[start:stop])


def test_a_part_lies_in_its_cache(corpus):
    cache = corpus.train.cache
    with pytest.raises(ValueError, match="`stop` must be an integer .*<= 432.*=433"):
        cache.part(0, 433)
    with pytest.raises(ValueError, match="`stop` must be an integer >= 9"):
        cache.part(9, 8)
    with pytest.raises(TypeError, match="takes slices. Received: 3"):
        cache.part(0, 9)[3]
    with pytest.raises(TypeError, match="slices of step 1"):
        cache.part(0, 9)[::2]


def test_fingerprints_tell_parts_apart(documents, corpus):
    again = documents.tokenized(byte_vocabulary(end=True))
    assert again.fingerprint() == corpus.fingerprint()
    cache = corpus.train.cache
    parts = [(0, 9), (0, 10), (1, 9)]
    assert len({cache.part(*part).fingerprint for part in parts}) == 3


def test_batches_go_on_at_any_step(corpus):
    arguments = {"seed": 3, "batch_size": 4, "length": 8}
    row = list(itertools.islice(corpus.batches(**arguments), 30))
    later = itertools.islice(corpus.batches(start_step=11, **arguments), 5)
    for step, pair in enumerate(later, start=11):
        for expected, found in zip(row[step], pair, strict=True):
            np.testing.assert_array_equal(found, expected)
    for expected, found in zip(row[7], corpus.batch(7, **arguments), strict=True):
        np.testing.assert_array_equal(found, expected)
    # 51 windows: the first 204 rows are four epochs, of every window each.
    targets = np.concatenate([y for _, y in row])
    windows = corpus.train[: 51 * 8 + 1][1:].reshape(51, 8)
    for epoch in range(2):
        seen = targets[epoch * 51 : (epoch + 1) * 51]
        assert sorted(map(tuple, seen)) == sorted(map(tuple, windows))


def test_every_fourth_window_begins_with_the_start_token(corpus):
    for step, (x, _) in zip(
        range(9), corpus.batches(seed=0, batch_size=6, length=8), strict=False
    ):
        begins = [(step + row) % 4 == 0 for row in range(6)]
        np.testing.assert_array_equal(x[:, 0] == 7, begins)
        assert (x[:, 1:] != 7).all()


def test_bytes_a_token(corpus):
    # Of a long corpus in many places; of a short one exactly.
    expected = (TOKENS[:410] != 256).mean()
    assert corpus.train_bytes_per_token() == pytest.approx(expected)
    assert corpus.bytes_per_token(np.array([65, 256])) == 0.5


def test_a_tokenizer_gets_the_first_documents(documents):
    few = Documents(documents.source, documents.cache, sample_bytes=30)
    assert few.sample() == "\n".join(TEXTS).encode()[:30]


def test_too_short(corpus):
    with pytest.raises(TextError, match="The validation text .*corpus: 36 documents"):
        corpus.check_length(22)
