"""Which windows of a batch a process reads, and in what parts: together, all."""

import numpy as np
import pytest

from keras_idea.data import Documents, TextSource, byte_vocabulary, load_text
from keras_idea.lm.data.tokens.interfaces import BatchShard
from keras_idea.lm.runs.train.devices import own_rows, rows_at_once
from tests.support.text_files import jsonl, write

ARGUMENTS = {"seed": 3, "batch_size": 12, "length": 8}


@pytest.fixture(params=["in memory", "from a cache"])
def corpus(request, tmp_path):
    if request.param == "in memory":
        (tmp_path / "text.txt").write_text("abcdefghij" * 60)
        return load_text(tmp_path / "text.txt")
    write(tmp_path, {"a.jsonl": jsonl(f"{i**5:011}" for i in range(60))})
    documents = Documents(TextSource(tmp_path / "a.jsonl"), tmp_path / "cache")
    return documents.tokenized(byte_vocabulary(end=True), start_id=7)


def first(corpus, steps, share):
    batches = corpus.batches(**ARGUMENTS, start_step=5, share=share)
    return [next(batches) for _ in range(steps * share.parts)]


@pytest.mark.parametrize("parts, count", [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_all_shares_side_by_side_are_the_batch(corpus, parts, count):
    whole = [corpus.batch(step, **ARGUMENTS) for step in (5, 6, 7)]
    shares = [first(corpus, 3, BatchShard(parts, i, count)) for i in range(count)]
    for step, batch in enumerate(whole):
        for kind in range(2):
            put_together = np.concatenate(
                [
                    shares[i][step * parts + part][kind]
                    for part in range(parts)
                    for i in range(count)
                ]
            )
            np.testing.assert_array_equal(put_together, batch[kind])


@pytest.mark.parametrize("rows", [1, 19, 20, 24])
@pytest.mark.parametrize("most, devices", [(8, 1), (8, 2), (3, 3)])
def test_a_validation_is_divided_whatever_its_rows(rows, most, devices):
    """Into batches no larger than a part of a step, which the devices can share."""
    rows *= devices
    size = rows_at_once(rows, most, devices)
    divisors = [n for n in range(1, rows + 1) if rows % n == n % devices == 0]
    assert size == max(n for n in divisors if n <= most)
    shares = [
        own_rows((np.arange(rows),), size, BatchShard(1, i, devices))[0]
        for i in range(devices)
    ]
    assert sorted(np.concatenate(shares)) == list(range(rows))


def test_rows_of_whole_batches():
    rows = np.arange(12)
    shares = [own_rows((rows,), 6, BatchShard(1, i, 3))[0] for i in range(3)]
    assert [share.tolist() for share in shares] == [
        [0, 1, 6, 7],
        [2, 3, 8, 9],
        [4, 5, 10, 11],
    ]
