"""Widths trained jointly: the members are what the nested FFNs compute."""

import dataclasses

import keras
import numpy as np
import pytest

from benchmarks.paper.build import new_model
from benchmarks.paper.nested_training import NestedFFN, kernels, narrowed, reordered
from benchmarks.paper.scale import SCALES
from keras_idea.models import decoder

SCALE = dataclasses.replace(SCALES["map"], model_dim=8, num_heads=2, target_dim=4)
WIDTHS = (6, 4, 2)


@pytest.mark.parametrize("turn", range(3))
def test_each_step_computes_with_the_next_width(turn):
    layer = NestedFFN(WIDTHS)
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    layer.build(x.shape)
    for _ in range(turn):
        layer(x, training=True)
    up, gate, down = (
        keras.ops.convert_to_numpy(k).astype("float64")
        for k in (layer.up_kernel, layer.gate_kernel, layer.down_kernel)
    )
    width = WIDTHS[turn]
    hidden = x @ up[:, :width]
    hidden = hidden / (1 + np.exp(-hidden)) * (x @ gate[:, :width])
    made = keras.ops.convert_to_numpy(layer(x, training=True))
    np.testing.assert_allclose(made, hidden @ down[:width], atol=1e-6)
    assert int(layer.turn) == (turn + 1) % 3


def test_a_member_computes_as_the_first_neurons():
    nested = decoder(
        SCALE.decoder_config(WIDTHS[0]),
        ffn=lambda hidden_dim, **layer: NestedFFN(WIDTHS, **layer),
        dtype="float32",
    )
    member = new_model(SCALE, 2)
    narrowed(nested, SCALE, 2).give_weights(member)
    rest = [k for k in kernels(nested) if k.shape[0] == WIDTHS[0]]  # of down
    assert len(rest) == SCALE.num_layers
    for kernel in rest:  # without their rows the others add nothing
        array = keras.ops.convert_to_numpy(kernel).copy()
        array[2:] = 0.0
        kernel.assign(array)
    ids = np.random.default_rng(1).integers(0, 256, (2, 8))
    made, expected = (np.asarray(m.predict(ids, verbose=0)) for m in (member, nested))
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_sorted_neurons_compute_the_same():
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.normal(size=(4, 3))]
    x, order = rng.normal(size=(5, 3)), np.array([2, 0, 3, 1])

    def computed(up, gate, down):
        return (np.tanh(x @ up) * (x @ gate)) @ down

    again = reordered(arrays, [order])
    np.testing.assert_allclose(computed(*again), computed(*arrays), atol=1e-12)
    assert (again[0] == arrays[0][:, order]).all()
