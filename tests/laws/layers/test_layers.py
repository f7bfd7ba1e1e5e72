"""The layers themselves: values, rematerialization, constraints."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, start_pruning, to_numpy

LAYERS = [ki.GatedFFN, ki.PrunableGatedFFN, ki.UngatedFFN, ki.PrunableFFN]


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("use_bias", [False, True])
def test_values_for_any_rank(cls, shape, use_bias):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype("float32")
    layer = cls(6, "silu", use_bias=use_bias)
    layer.build(shape)
    for weight in layer.weights:
        if "kernel" in weight.name or "bias" in weight.name:
            weight.assign(rng.normal(size=weight.shape))
    names = ("up", "gate", "down") if "Gated" in cls.__name__ else ("up", "down")
    up, *gate, down = (to_numpy(getattr(layer, f"{n}_kernel")) for n in names)
    assert up.shape == (4, 6) and down.shape == (6, 4)
    biases = [0] * len(names)
    if use_bias:
        biases = [to_numpy(getattr(layer, f"{name}_bias")) for name in names]
    # `up` is the activated one, as in the paper.
    hidden = silu(x @ up + biases[0])
    for kernel in gate:
        assert kernel.shape == (4, 6)
        hidden = hidden * (x @ kernel + biases[1])
    expected = hidden @ down + biases[-1]
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("seed", [None, 1, "generator"])
def test_up_and_gate_start_different(seed):
    if seed == "generator":
        seed = keras.random.SeedGenerator(3)
    initializer = keras.initializers.GlorotUniform(seed=seed)
    layer = ki.GatedFFN(6, kernel_initializer=initializer)
    layer.build((None, 4))
    assert np.abs(to_numpy(layer.up_kernel) - to_numpy(layer.gate_kernel)).max() > 0.1


@pytest.mark.daily("torch", "jax")
def test_rematerialization_does_not_count_twice(data):
    # Without XLA, Keras on TensorFlow may recompute with weights that are updated
    # already: a stock layer's gradients are then off too.
    jit = keras.backend.backend() == "tensorflow" or "auto"
    with keras.RematScope(mode="full"):
        ffn = ki.PrunableGatedFFN(16)
    inputs = keras.Input((5, 8))
    head = keras.layers.Dense(1, use_bias=False)
    model = keras.Model(inputs, head(inputs + ffn(inputs)))
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    plain = residual_model((16,))
    plain.set_weights(model.get_weights())
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    for m in (model, plain):
        start_pruning(m, 4, 1, 4)
    for _ in range(6):
        np.testing.assert_allclose(
            model.train_on_batch(*data), plain.train_on_batch(*data), rtol=1e-5
        )
    (other,) = ki.find_ffns(plain)
    assert ffn.width == 4
    np.testing.assert_array_equal(to_numpy(ffn.mask), to_numpy(other.mask))
    np.testing.assert_allclose(
        to_numpy(ffn.scores), to_numpy(other.scores), rtol=1e-4, atol=1e-8
    )


def over_all(x):
    return x / (1 + keras.ops.max(keras.ops.abs(x), axis=-1, keepdims=True))


@pytest.mark.parametrize("activation", ["softmax", over_all])
@pytest.mark.parametrize("layer", [ki.PrunableFFN, ki.PrunableGatedFFN])
def test_an_activation_over_the_neurons_is_refused(layer, activation):
    """Fewer neurons would have another softmax."""
    with pytest.raises(ValueError, match=r"each neuron alone.*(softmax|over_all)"):
        layer(8, activation=activation)


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
