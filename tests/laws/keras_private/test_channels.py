"""What layers are told of their channels, and what Keras makes of their configs."""

import keras
from keras import layers

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
