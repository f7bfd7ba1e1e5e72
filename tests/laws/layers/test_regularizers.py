"""Regularizers and constraints: as Dense's, and beside the masks."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.surgery.narrow_in_place import shrink_in_place
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


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Revives(keras.constraints.Constraint):
    """Maps 0 to something else."""

    def __call__(self, w):
        return w + 0.01


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


@pytest.mark.parametrize("cls", [ki.GatedFFN, ki.PrunableGatedFFN])
def test_config_holds_them(cls):
    layer = cls(6, use_bias=True, activity_regularizer="l2", **REGULARIZED)
    config = layer.get_config()
    again = cls.from_config(config)
    assert again.get_config() == config
    assert again.kernel_constraint.max_value == 0.9
    assert isinstance(again.bias_regularizer, keras.regularizers.L2)
    # A file from before they were there.
    for name in REGULARIZED:
        config.pop(name)
    assert cls.from_config(config).kernel_regularizer is None


def check_carried(narrow):
    for kind in ("kernel", "bias"):
        for name in MATRICES:
            variable = getattr(narrow, f"{name}_{kind}")
            assert variable.regularizer is getattr(narrow, f"{kind}_regularizer")
            assert variable.constraint is getattr(narrow, f"{kind}_constraint")
    assert narrow.get_config()["kernel_regularizer"]["class_name"] == "L2"
    assert narrow.get_config()["bias_constraint"]["class_name"] == "NonNeg"


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


def test_compact_and_narrowing_carry_them(data):
    # On jax the gradient of L1 at 0 is not 0, and moves what is dead.
    arguments = {**REGULARIZED, "kernel_regularizer": keras.regularizers.L2(0.02)}
    model, ffn = pruned(data, 6, activity_regularizer="l1", **arguments)
    layer = ffn.layer.compact()
    check_carried(layer)
    assert layer.activity_regularizer is not None
    narrow = ki.compact(model)
    check_carried(narrow.get_layer("ffn_0"))
    penalties = [
        sum(penalty(v) for v in part.trainable_variables) for part in (layer, ffn.layer)
    ]
    np.testing.assert_allclose(*penalties, rtol=1e-6)
    for _ in range(3):
        losses = [m.train_on_batch(*data) for m in (model, narrow)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
        assert not any(weights.any() for weights in dead_weights(ffn))
    shrink_in_place(model)
    assert ffn.layer.hidden_dim == 6
    check_carried(ffn.layer)
    losses = [m.train_on_batch(*data) for m in (model, narrow)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


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


def test_the_mask_holds_against_a_constraint_that_revives(data):
    model, ffn = pruned(data, 5, kernel_constraint=Revives())
    assert not any(weights.any() for weights in dead_weights(ffn))  # zeroed last
    model.train_on_batch(*data)
    assert all(weights.any() for weights in dead_weights(ffn)[:3])
    assert ffn.width == 5
    narrow = ki.compact(model)
    outputs = [m.predict(data[0], verbose=0) for m in (model, narrow)]
    np.testing.assert_allclose(*outputs, rtol=1e-4)
    prune = ki.IdeaPruneCallback(4, begin_step=7, prune_steps=2)
    model.fit(*data, verbose=0, callbacks=[prune], batch_size=8)
    assert ffn.hidden_dim == 4


def test_only_two_arguments_go_by_place():
    for cls in (ki.GatedFFN, ki.PrunableGatedFFN):
        assert cls(4, "gelu").activation is keras.activations.gelu
        with pytest.raises(TypeError, match="positional"):
            cls(4, "gelu", True)
