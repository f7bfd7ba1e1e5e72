"""What layers are told of their channels, and what Keras makes of their configs."""

import keras
import numpy as np
from keras import layers

import keras_idea as ki
from keras_idea.groups.find_channels import followed
from keras_idea.keras_private import channels
from keras_idea.keras_private.variables import shaped


class Mine(layers.Conv2D):
    pass


def test_which_layers_are_keras_own():
    assert channels.is_stock_layer(layers.Conv2D(2, 1))
    assert channels.is_stock_layer(layers.Resizing(2, 2))
    assert not channels.is_stock_layer(Mine(2, 1))


def test_sizes_of_a_reshape_and_of_an_input():
    reshape = layers.Reshape((2, 8))
    channels.tell_size(reshape, 1, 3)
    assert reshape.get_config()["target_shape"] == (2, 3)
    model = keras.Sequential([keras.Input((4, 8)), layers.ReLU()])
    (given,) = channels.input_layers(model)
    channels.tell_size(given, 1, 3)
    assert model.input_shape == (None, 4, 3)
    assert given.get_config()["batch_shape"] == (None, 4, 3)


def test_a_layer_is_told_its_kernels_shape():
    model = keras.Sequential([keras.Input((5, 5, 4)), layers.Conv2D(6, 3, name="c")])
    conv = model.layers[0]
    with shaped(conv._kernel, (3, 3, 2, 5)):
        channels.tell_channels(conv)
        assert (conv.filters, conv.input_spec.axes) == (5, {-1: 2})
    channels.tell_channels(conv)
    channels.tell_shapes(model, followed(model))
    assert conv.filters == 6
    assert conv.get_build_config()["input_shape"] == (None, 5, 5, 4)


def test_where_a_bias_is_added_to_the_width():
    """Keras on TensorFlow: of `channels_first`, if there are as many as in a row."""
    first = {"data_format": "channels_first", "kernel_initializer": "zeros"}
    inputs = keras.Input((2, 3, 4))
    conv = layers.Conv2D(4, 1, name="conv", **first)
    model = keras.Model(inputs, layers.Conv2D(2, 1, **first)(conv(inputs)))
    conv.bias.assign(np.arange(4.0))
    made = keras.ops.convert_to_numpy(conv(np.zeros((1, 2, 3, 4), "float32")))
    is_wrong = not np.array_equal(made[0, :, 0, 0], np.arange(4.0))
    assert is_wrong == (keras.backend.backend() == "tensorflow")
    assert is_wrong == channels.adds_bias_to_width(conv, keras.KerasTensor(made.shape))
    assert not channels.adds_bias_to_width(conv, keras.KerasTensor((1, 4, 3, 5)))
    reasons = str(ki.explain(model).left_out.get("conv"))
    assert is_wrong == ("adds it to the width" in reasons)
