"""Activations in a model, exactly from samples, against NumPy."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Activation
from tests.support.helpers import residual_model, set_random_weights, to_numpy
from tests.support.method_reference import AGGREGATIONS
from tests.support.older_keras import needs_3_15

TOKENS = 6


def silu(x):
    return x / (1 + np.exp(-x))


def hidden_of(model, x):
    """The hidden activations of each FFN of a residual model, in float64 NumPy."""
    found = []
    x = x.astype("float64")
    for ffn in ki.find_ffns(model):
        up, gate, down = (to_numpy(k).astype("float64") for k in ffn.kernels)
        found.append(silu(x @ up) * (x @ gate))
        x = x + found[-1] @ down
    return found


def language_model(masked=False, remat=False):
    """Token ids, embedding, two FFNs; `mask_zero` or a padding mask as an input."""
    ids = keras.Input((TOKENS,), dtype="int32", name="token_ids")
    x = keras.layers.Embedding(11, 8, mask_zero=masked, name="embedding")(ids)
    for index in range(2):
        with keras.RematScope("full" if remat else None):
            ffn = ki.PrunableGatedFFN(16, name=f"ffn_{index}")
        x = keras.layers.Add()([x, ffn(x)])  # which passes a mask on
    outputs = keras.layers.Dense(11)(x)
    if masked:
        return keras.Model(ids, outputs)
    mask = keras.Input((TOKENS,), dtype="bool", name="padding_mask")
    return keras.Model({"token_ids": ids, "padding_mask": mask}, outputs)


@pytest.fixture
def tokens():
    """Nine sequences of ids from 1 on, padded with 0, and their mask."""
    rng = np.random.default_rng(0)
    mask = np.arange(TOKENS) < rng.integers(1, TOKENS + 1, 9)[:, None]
    return rng.integers(1, 11, (9, TOKENS)) * mask, mask


def importance(model, data, **arguments):
    """The importance of every FFN's neurons by `data`."""
    method = Activation(data, **{"num_samples": 1000, **arguments})
    return list(map(to_numpy, method.importance(model, ki.find_ffns(model), None)))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_exact_statistics_against_numpy(data, aggregation):
    """All samples; the first 50, in uneven batches; one at a time; as batches."""
    model = residual_model()
    set_random_weights(model)
    x = data[0]
    expected = [AGGREGATIONS[aggregation](z) for z in hidden_of(model, x)]
    fifty = [AGGREGATIONS[aggregation](z) for z in hidden_of(model, x[:50])]
    cases = [
        (importance(model, x, aggregation=aggregation), expected),
        (importance(model, x, aggregation=aggregation, num_samples=50), fifty),
        (importance(model, x, aggregation=aggregation, batch_size=1), expected),
        (importance(model, iter([x[:40], (x[40:], 0)]), aggregation=aggregation),) * 2,
    ]
    for found, theirs in [*cases[:3], (cases[3][0], expected)]:
        for one, other in zip(found, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5)


def test_weighed_by_the_spans_of_the_weights(data):
    """Beside NumPy; `shrink` keeps the largest, by the method and by hand."""
    model = residual_model()
    set_random_weights(model)
    x = data[0]
    found = importance(model, x, by_weights=True)
    for ffn, hidden, one in zip(
        ki.find_ffns(model), hidden_of(model, x), found, strict=True
    ):
        up, gate, down = (to_numpy(k).astype("float64") for k in ffn.kernels)
        spans = [k.max(1) + abs(k.min(1)) for k in (up.T, gate.T, down)]
        total = sum(span / span.max() for span in spans)
        expected = AGGREGATIONS["paper"](hidden) * total
        np.testing.assert_allclose(one, expected, rtol=2e-5)
        assert np.argsort(expected).tolist() != np.argsort(expected / total).tolist()
    method = Activation(by_weights=True)
    small = ki.shrink(model, {"neurons": 0.5}, x, method=method)
    for ffn, narrow, one in zip(
        ki.find_ffns(model), ki.find_ffns(small), found, strict=True
    ):
        kept = np.sort(np.argsort(-one, kind="stable")[: narrow.hidden_dim])
        kernel = to_numpy(ffn.kernels[0])[:, kept]
        np.testing.assert_array_equal(to_numpy(narrow.kernels[0]), kernel)


@needs_3_15
@pytest.mark.parametrize("kind", ["dict", "mask_zero", "remat"])
def test_padding_does_not_count(tokens, kind):
    """The same importance as from the sequences without their padding."""
    ids, mask = tokens
    model = language_model(masked=kind == "mask_zero", remat=kind == "remat")
    data = {"token_ids": ids, "padding_mask": mask}
    found = importance(model, ids if kind == "mask_zero" else data, batch_size=4)
    embedded = to_numpy(model.get_layer("embedding").embeddings)[ids]
    for hidden, one in zip(hidden_of(model, embedded), found, strict=True):
        real = [z[m] for z, m in zip(hidden, mask, strict=True)]
        np.testing.assert_allclose(one, AGGREGATIONS["paper"](real), rtol=2e-5)


@needs_3_15
def test_padding_alone_is_no_sample(tokens):
    ids, mask = tokens
    data = {"token_ids": ids, "padding_mask": np.zeros_like(mask)}
    with pytest.raises(ValueError, match="padding"):
        importance(language_model(), data, batch_size=4)
