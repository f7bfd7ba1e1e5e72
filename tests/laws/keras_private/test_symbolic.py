"""What Keras does with symbolic tensors: where its graph is noted, what is called."""

import keras
import pytest
from keras.src.layers import layer as keras_layer
from keras.src.ops import operation as keras_operation

from keras_idea._keras.symbolic import record


def names(recording):
    return [type(call.operation).__name__ for call in recording.calls]


class Twice(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(4)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(keras.ops.relu(self.inner(x))) + 1.0


@pytest.mark.parametrize(
    "looked_into, called",
    [
        (lambda layer: isinstance(layer, Twice), ["Dense", "Relu", "Dense", "Add"]),
        (lambda layer: False, ["Twice"]),
    ],
)
def test_a_composite_layer(looked_into, called):
    layer = Twice()
    layer.build((None, 4))
    recording = record(layer, looked_into)
    assert names(recording) == called and not recording.opaque
    assert recording.calls[0].inputs[0] is recording.inputs[0]
    assert recording.calls[-1].outputs[0] is recording.outputs[0]
    assert recording.inputs[0].shape == (2, 4) and not recording.ends


def test_keras_is_as_before():
    before = keras_layer.Node, keras_operation.Node, keras.layers.Layer.symbolic_call
    layer = Twice()
    layer.build((None, 4))
    record(layer, lambda layer: True)
    assert not layer._inbound_nodes and not layer.inner._outbound_nodes
    after = keras_layer.Node, keras_operation.Node, keras.layers.Layer.symbolic_call
    assert after == before
    assert "Node" in vars(keras_layer) and "Node" in vars(keras_operation)


def test_a_call_is_a_function_of_tensors():
    inputs = keras.Input((3,))
    dropped = keras.layers.Dropout(0.5)(inputs * 2.0)
    model = keras.Model(inputs, dropped)
    recording = record(model, lambda layer: layer is model)
    *_, product, dropout = recording.calls
    ones = keras.ops.ones((2, 3))
    assert float(keras.ops.sum(product.function()(ones))) == 12
    assert float(keras.ops.sum(dropout.function(training=False)(ones))) == 6
