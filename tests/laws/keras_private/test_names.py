"""What Keras's layers and optimizers do inside, a line or two for each private name."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_idea._keras import layers as inside
from keras_idea._keras import optimizer_variables as of_optimizer
from keras_idea._keras.channels import input_layers, is_stock_layer, tell, tell_size
from keras_idea._keras.models import (
    compilation,
    compile_arguments,
    has_own_train_step,
)
from keras_idea._keras.read_instead import names_of
from keras_idea._keras.variables import give_value, shaped
from tests.support.helpers import to_numpy


def built(layer, shape=(None, 4)):
    layer.build(shape)
    return layer


def test_weights_of_layers():
    lora = built(layers.Dense(3))
    assert names_of(lora, lora.kernel) == ["_kernel"]
    lora.enable_lora(2)
    assert lora.kernel is not inside.stored_kernel(lora)
    assert inside.stored_kernel(lora).shape == (4, 3)
    norm = built(layers.BatchNormalization())
    new = {"name": "other", "shape": (5,), "trainable": False}
    inside.renew_weight(norm, "moving_mean", lambda: norm.add_weight(**new))
    assert norm.non_trainable_variables[0] is norm.moving_mean
    assert norm.moving_mean.shape == (5,)
    dense = built(layers.Dense(2))
    with shaped(dense.kernel, (4, 7)):
        assert tuple(dense.kernel.shape) == (4, 7)
    give_value(dense.kernel, keras.ops.ones((4, 1)))
    inside.retrack_parameters([dense])
    tell(dense)
    assert dense.units == 1 and dense.count_params() == 6
    if keras.backend.backend() == "torch":
        assert any(p is dense.kernel.value for p in dense.parameters())


def test_what_layers_hold():
    inner = built(layers.Dense(3, name="inner"))
    model = keras.Sequential([keras.Input((4,)), inner, layers.Dropout(0.5)])
    assert inner in inside.walk(model) and inner in inside.all_layers(model)
    takes = map(inside.takes_training, (layers.Dropout(0.1), layers.ReLU()))
    assert [*takes] == [True, False]
    assert is_stock_layer(inner) and not inner._remat_mode
    inside.rematerialize(inner)
    assert inner._remat_mode
    with inside.without_remat(inner):
        assert inner(np.ones((1, 4), "float32")).shape == (1, 3)
    norm = built(layers.BatchNormalization())
    for variable in norm.variables:
        give_value(variable, keras.ops.ones((5,)))
    tell(norm)
    assert norm.input_spec.axes == {-1: 5}
    (given,) = input_layers(model)
    tell_size(given, -1, 6)
    assert model.input_shape == (None, 6)
    wrapper = built(layers.TimeDistributed(layers.Dense(2)), (None, 3, 4))
    wrapped = wrapper.layer
    inside.replace_class(wrapper, layers.Wrapper, "layer")
    assert type(wrapper) is layers.Wrapper and wrapped not in inside.sublayers(wrapper)


def test_what_models_hold():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    assert compilation(model) is None and not has_own_train_step(model)
    model.compile("sgd", "mse")
    first = compilation(model)
    model.compile(**compile_arguments(model))
    assert compilation(model) is not first is not None


def test_what_optimizers_hold():
    a, b = (keras.Variable(np.ones(2, "float32"), name=name) for name in "ab")
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    optimizer.build([a, b])
    assert of_optimizer.trained_variables(optimizer)[1] is b
    for _ in range(2):
        optimizer.apply([keras.ops.ones(2), keras.ops.ones(2)], [a, b])
    assert int(of_optimizer.apply_count(optimizer).value) == 2
    found = of_optimizer.accumulated_gradient(optimizer, b)
    np.testing.assert_allclose(to_numpy(found), [2, 2])
    added = optimizer.add_variable((2,), name="added")
    of_optimizer.untrack_variable(optimizer, added)
    assert not any(v is added for v in optimizer.variables)
    adam = keras.optimizers.Adam()
    scaled = keras.optimizers.LossScaleOptimizer(adam)
    assert of_optimizer.parts(scaled) == [scaled, adam]
    assert of_optimizer.innermost(scaled) is adam
    assert float(to_numpy(of_optimizer.rate_source(keras.optimizers.SGD(0.5)))) == 0.5


def test_a_locked_layer_takes_another():
    layer, late = (
        built(layers.TimeDistributed(layers.Dense(2)), (None, 3, 4)),
        layers.ReLU(),
    )
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        layer.late = late
    inside.unlocked(layer, setattr, "late", late)
    assert late in inside.sublayers(layer)


class Net(keras.Model):
    def __init__(self, width=3, **kwargs):
        super().__init__(**kwargs)
        self.width, self.drop = width, layers.Dropout(0.5)


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
def test_half_precision_is_computed_in_float32(policy):
    dense = built(layers.Dense(3, dtype=policy))
    with inside.computing_in_float32(dense):
        made = dense(np.full((2, 4), 1 + 2**-12, "float32"))
    assert keras.backend.standardize_dtype(made.dtype) == "float32"
    kernel = keras.ops.cast(dense.kernel, "float32")
    expected = keras.ops.sum(kernel, axis=0) * (1 + 2**-12)
    np.testing.assert_allclose(to_numpy(made)[0], to_numpy(expected), rtol=1e-6)
    assert dense.compute_dtype == "bfloat16"


def test_what_is_a_layers_own():
    model = Net(4)
    assert inside.own_settings(model) == {"width": 4}
    assert inside.own_settings(layers.Dense(2))["units"] == 2
    norm = built(layers.BatchNormalization())
    assert inside.own_weights(norm) == (norm.weights, [])
    assert len(inside.own_weights(model.drop)[1]) == 1
