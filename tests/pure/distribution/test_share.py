"""Which windows of a validation a process reads: together, all."""

import numpy as np
import pytest

from keras_idea.lm.runs.train.devices import BatchShard, own_rows, rows_at_once


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
