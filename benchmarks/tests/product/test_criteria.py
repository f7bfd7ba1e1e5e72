"""A checkpoint cut by criteria of one pass, on a tiny Llama."""

import numpy as np
import pytest

import keras_idea as ki
from benchmarks.checkpoints import criteria
from benchmarks.checkpoints.cells import inputs
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm

DATA = inputs(np.random.default_rng(0).integers(1, 32, (16, 8)))


def test_one_pass_finds_what_numpy_does():
    """Of the first FFN, from the embeddings on: its block without attention."""
    lm = tiny_lm("llama", intermediate_dim=64)
    block = lm.backbone.transformer_layers[0]
    block._self_attention_layer._output_dense.kernel.assign(
        np.zeros(block._self_attention_layer._output_dense.kernel.shape)
    )
    table = to_numpy(lm.backbone.token_embedding.embeddings).astype("float64")
    x = table[DATA["token_ids"]]
    norm = block._feedforward_layernorm
    x /= np.sqrt(np.square(x).mean(-1, keepdims=True) + norm.epsilon)
    x *= to_numpy(norm.scale)
    gate = x @ to_numpy(block._feedforward_gate_dense.kernel).astype("float64")
    up = x @ to_numpy(block._feedforward_intermediate_dense.kernel)
    hidden = gate / (1 + np.exp(-gate)) * up
    rows = hidden.reshape(-1, hidden.shape[-1])
    found = criteria.statistics_of(lm, DATA)[0]
    np.testing.assert_allclose(found.gram, rows.T @ rows / len(rows), atol=1e-5)
    np.testing.assert_allclose(found.mean, rows.mean(0), atol=1e-5)
    norms = np.sqrt(np.square(hidden).sum(axis=1)).mean(axis=0)
    np.testing.assert_allclose(found.norm, norms, rtol=1e-4)


@pytest.mark.parametrize("refit", [False, True])
def test_each_criterion_cuts(refit):
    lm = tiny_lm("llama", intermediate_dim=64)
    scores = criteria.ranked(lm, DATA)
    kernels = [to_numpy(ffn.kernels[0]) for ffn in ki.find_ffns(lm)]
    for name, rows in scores.items():
        cell = criteria.Cell(0.5, name, "wikitext2", refit)
        made = criteria.carry_out(cell, lm, rows, DATA)
        for ffn, kernel, row in zip(ki.find_ffns(made), kernels, rows, strict=True):
            kept = np.sort(np.argsort(-np.float32(row), kind="stable")[: ffn.width])
            assert ffn.width == lm.backbone.intermediate_dim // 2
            np.testing.assert_array_equal(to_numpy(ffn.kernels[0]), kernel[:, kept])
