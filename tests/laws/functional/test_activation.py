"""Importance by activations, against NumPy loops written from METHODS.md."""

import numpy as np
import pytest

from keras_idea.functional import importance
from tests.support.helpers import to_numpy
from tests.support.method_reference import AGGREGATIONS


@pytest.fixture
def hidden():
    return np.random.default_rng(0).normal(size=(6, 5, 7)).astype("float32")


def whole(hidden, mask, aggregation):
    """The importance by one batch."""
    sums = importance.activation_sums(hidden, mask, aggregation)
    return to_numpy(importance.importance_of_sums(*sums, aggregation))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.daily("torch", "jax", "tensorflow")
def test_streaming_equals_one_batch(hidden, aggregation, size=4):
    mask = np.arange(5) < np.array([5, 3, 1, 0, 4, 2])[:, None]
    sums, samples = 0.0, 0.0
    for start in range(0, 6, size):
        part = slice(start, start + size)
        more, n = importance.activation_sums(hidden[part], mask[part], aggregation)
        sums, samples = sums + to_numpy(more), samples + float(n)
    assert samples == 5
    np.testing.assert_allclose(
        to_numpy(importance.importance_of_sums(sums, samples, aggregation)),
        whole(hidden, mask, aggregation),
        rtol=1e-6,
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_any_rank(hidden, aggregation):
    """Several axes between samples and neurons are one sequence; none is one token."""
    cube = hidden.reshape(3, 2, 5, 7)
    mask = np.ones((3, 2, 5))
    mask[0, 1, 2:] = 0
    real = [cube[0].reshape(-1, 7)[:7], cube[1].reshape(-1, 7), cube[2].reshape(-1, 7)]
    for found, samples in (
        (whole(cube, mask, aggregation), real),
        (whole(hidden[0], None, aggregation), [z[None] for z in hidden[0]]),
    ):
        expected = AGGREGATIONS[aggregation](samples)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
