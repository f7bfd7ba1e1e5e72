"""Regularizers and constraints: as Dense's, and beside the masks."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, start_pruning, to_numpy

REGULARIZED = {
    "kernel_regularizer": keras.regularizers.L1L2(0.01, 0.02),
    "bias_regularizer": "l2",
    "kernel_constraint": keras.constraints.MaxNorm(0.9),
    "bias_constraint": "non_neg",
    "kernel_initializer": keras.initializers.RandomNormal(seed=1),
    "bias_initializer": keras.initializers.RandomUniform(0.1, 0.9, seed=5),
}
MATRICES = ("up", "gate", "down")


def dense_ffn(layer):
    """The same function of three Dense layers, with the weights of `layer`."""
    dense = {
        name: keras.layers.Dense(
            getattr(layer, f"{name}_kernel").shape[1],
            activation="silu" if name == "up" else None,
            name=name,
            **REGULARIZED,
        )
        for name in MATRICES
    }
    inputs = keras.Input((5, 8))
    outputs = dense["down"](dense["up"](inputs) * dense["gate"](inputs))
    model = keras.Model(inputs, outputs)
    for name in MATRICES:
        for kind in ("kernel", "bias"):
            value = getattr(layer, f"{name}_{kind}")
            getattr(dense[name], kind).assign(to_numpy(value))
    return model, dense


def penalty(variable):
    return float(to_numpy(variable.regularizer(variable.value)))


@pytest.mark.parametrize("cls", [ki.GatedFFN, ki.PrunableGatedFFN])
def test_losses_and_steps_are_those_of_dense(cls, data):
    layer = cls(16, use_bias=True, **REGULARIZED)
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, layer(inputs))
    other, dense = dense_ffn(layer)
    assert to_numpy(layer.up_bias).min() >= 0.1
    assert (to_numpy(layer.up_bias) != to_numpy(layer.gate_bias)).all()
    for kind in ("kernel", "bias"):
        kinds = [v for v in layer.trainable_variables if v.name.endswith(kind)]
        ours = [penalty(v) for v in kinds]
        theirs = [getattr(dense[name], kind) for name in MATRICES]
        np.testing.assert_allclose(ours, [penalty(v) for v in theirs])
    assert len(layer.losses) == len(other.losses) == 6
    losses = [sorted(to_numpy(loss) for loss in m.losses) for m in (model, other)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    x = data[0]
    for m in (model, other):
        m.compile(keras.optimizers.SGD(0.1), "mse")
    for _ in range(3):
        steps = [m.train_on_batch(x, np.ones_like(x)) for m in (model, other)]
        np.testing.assert_allclose(*steps, rtol=1e-5)
    for name in MATRICES:
        for kind in ("kernel", "bias"):
            ours = to_numpy(getattr(layer, f"{name}_{kind}"))
            theirs = to_numpy(getattr(dense[name], kind))
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


def pruned(data, target, **arguments):
    """A model of one FFN, its neurons pruned to `target`, still wide."""
    model = residual_model((16,), use_bias=True, **arguments)
    # Moments would go on moving what is dead, once no pruner is at work.
    model.compile(keras.optimizers.SGD(0.05), "mse")
    prune = start_pruning(model, target, 0, 4)
    for _ in range(6):
        model.train_on_batch(*data)
    prune.on_train_end()
    (ffn,) = ki.find_ffns(model)
    assert ffn.width == target and ffn.hidden_dim == 16
    return model, ffn


def dead_weights(ffn):
    """All weights of pruned neurons in the three matrices and two biases."""
    dead = np.flatnonzero(to_numpy(ffn.mask) == 0)
    return [np.take(to_numpy(c.variable), dead, axis=c.axis) for c in ffn.cuts()]


@pytest.mark.parametrize(
    "constraint",
    [
        keras.constraints.NonNeg(),
        keras.constraints.MaxNorm(0.5),
        keras.constraints.UnitNorm(),
        keras.constraints.MinMaxNorm(0.5, 0.9),
    ],
)
def test_pruned_neurons_stay_zero(constraint, data):
    model, ffn = pruned(data, 5, kernel_constraint=constraint)
    for _ in range(3):
        model.train_on_batch(*data)
    assert not any(weights.any() for weights in dead_weights(ffn))
    # It holds of the living: once more changes nothing.
    for kernel in ffn.kernels:
        again = to_numpy(constraint(kernel.value))
        np.testing.assert_allclose(again, to_numpy(kernel), rtol=1e-5, atol=1e-6)
