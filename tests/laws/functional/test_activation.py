"""Importance by activations, against NumPy loops written from METHODS.md."""

import numpy as np
import pytest

from keras_idea import functional
from tests.support.helpers import to_numpy
from tests.support.method_reference import AGGREGATIONS


@pytest.fixture
def hidden():
    return np.random.default_rng(0).normal(size=(6, 5, 7)).astype("float32")


def test_by_hand():
    hidden = np.array([[[3.0, 1.0], [-4.0, 0.0]], [[0.0, 2.0], [0.0, -2.0]]])
    importance = functional.activation_importance(hidden)
    np.testing.assert_allclose(
        to_numpy(importance), [(5 + 0) / 2, (1 + 8**0.5) / 2], rtol=1e-6
    )
    importance = functional.activation_importance(hidden, aggregation="minitron")
    np.testing.assert_allclose(
        to_numpy(importance), [3.5, (0.5**2 + 2**2) ** 0.5], rtol=1e-6
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_against_numpy(hidden, aggregation):
    importance = functional.activation_importance(hidden, aggregation=aggregation)
    expected = AGGREGATIONS[aggregation](list(hidden))
    np.testing.assert_allclose(to_numpy(importance), expected, rtol=1e-6)
    assert importance.shape == (7,)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_padding_does_not_count(hidden, aggregation):
    """As if the padded tokens, and a sample of nothing else, were not there."""
    lengths = [5, 3, 1, 0, 4, 2]
    mask = np.arange(5) < np.array(lengths)[:, None]
    real = [z[:n] for z, n in zip(hidden, lengths, strict=True) if n]
    expected = AGGREGATIONS[aggregation](real)
    for kind in ("bool", "int32", "float32"):
        importance = functional.activation_importance(
            hidden, mask.astype(kind), aggregation
        )
        np.testing.assert_allclose(to_numpy(importance), expected, rtol=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("size", [1, 4])
def test_streaming_equals_one_batch(hidden, aggregation, size):
    mask = np.arange(5) < np.array([5, 3, 1, 0, 4, 2])[:, None]
    sums, samples = 0.0, 0.0
    for start in range(0, 6, size):
        part = slice(start, start + size)
        more, n = functional.activation_sums(hidden[part], mask[part], aggregation)
        sums, samples = sums + to_numpy(more), samples + float(n)
    assert samples == 5
    np.testing.assert_allclose(
        to_numpy(functional.importance_of_sums(sums, samples, aggregation)),
        to_numpy(functional.activation_importance(hidden, mask, aggregation)),
        rtol=1e-6,
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_any_rank(hidden, aggregation):
    """Several axes between samples and neurons are one sequence; none is one token."""
    cube = hidden.reshape(3, 2, 5, 7)
    mask = np.ones((3, 2, 5))
    mask[0, 1, 2:] = 0
    real = [cube[0].reshape(-1, 7)[:7], cube[1].reshape(-1, 7), cube[2].reshape(-1, 7)]
    importance = functional.activation_importance(cube, mask, aggregation)
    np.testing.assert_allclose(
        to_numpy(importance), AGGREGATIONS[aggregation](real), rtol=1e-6
    )
    importance = functional.activation_importance(hidden[0], aggregation=aggregation)
    np.testing.assert_allclose(
        to_numpy(importance),
        AGGREGATIONS[aggregation]([z[None] for z in hidden[0]]),
        rtol=1e-6,
    )


def test_half_precision_is_computed_in_float32():
    hidden = np.full((1, 2, 1), 300.0, "float16")
    importance = functional.activation_importance(hidden)
    np.testing.assert_allclose(to_numpy(importance), [300 * 2**0.5], rtol=1e-6)


def test_an_unknown_aggregation_is_refused(hidden):
    message = "`aggregation` must be one of 'paper', 'minitron'.*'mean'"
    with pytest.raises(ValueError, match=message):
        functional.activation_importance(hidden, aggregation="mean")
    with pytest.raises(ValueError, match=message):
        functional.importance_of_sums(hidden[0, 0], 1, aggregation="mean")
