"""What Keras notes of calls on symbolic tensors: from a layer to what holds it."""

import keras
import pytest

from keras_idea.keras_private.around import layers_around
from keras_idea.keras_private.layers import walk
from tests.support.hub_models import tiny_lm


def parts():
    """Two layers in a model, and that model in another one."""
    inputs = keras.Input((4,))
    up, down = keras.layers.Dense(6), keras.layers.Dense(3)
    inner = keras.Model(inputs, down(up(inputs)), name="inner")
    return inputs, up, down, inner


def test_a_model_that_was_called_on_the_same_tensors_is_found():
    inputs, up, down, inner = parts()
    outer = keras.Sequential([inner, keras.layers.Dense(2)], name="outer")
    outer(inputs)
    flat = keras.Model(inputs, keras.layers.ReLU()(inner.output))
    assert layers_around(flat, [up]) == [outer]  # not what is in it besides
    assert layers_around(flat, [flat.layers[-1]]) == []
    assert layers_around(outer, [up]) == []


def test_one_that_was_never_called_is_not():
    """Keras notes calls, not what holds what."""
    inputs, up, _, inner = parts()
    flat = keras.Model(inputs, keras.layers.ReLU()(inner.output))
    assert layers_around(flat, [up]) == []
    inner(inputs)
    assert layers_around(flat, [up]) == [inner]


def test_layers_alone_lead_there_too():
    """As those that a subclassed model takes out of another one."""
    inputs, up, down, inner = parts()
    inner(inputs)

    class Taking(keras.Model):
        def __init__(self):
            super().__init__()
            self.up, self.head = up, keras.layers.Dense(1)

        def call(self, x):
            return self.head(self.up(x))

    taking = Taking()
    taking(keras.ops.ones((2, 4)))
    assert layers_around(taking, [up]) == [inner]


@pytest.mark.parametrize("name", ["llama3", "gpt2", "bart"])
def test_a_task_of_kerashub_calls_its_backbone(name):
    backbone = tiny_lm(name).backbone
    output = keras.tree.flatten(backbone.output)[0]
    flat = keras.Model(backbone.input, keras.layers.ReLU()(output))
    dense = [layer for layer in walk(flat) if isinstance(layer, keras.layers.Dense)]
    assert layers_around(flat, dense) == [backbone]
