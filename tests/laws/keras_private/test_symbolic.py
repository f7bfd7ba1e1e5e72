"""What Keras does with symbolic tensors: where its graph is noted, what is called."""

import threading

import keras
import numpy as np
import pytest
from keras.src.layers import layer as keras_layer
from keras.src.ops import operation as keras_operation

from keras_idea.keras_private.symbolic import example_arrays, record
from tests.support.helpers import to_numpy


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


class Beside(Twice):
    """Another thread calls layers, and records them, while it is recorded."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.made, self.threads = [], []

    def call(self, x):
        def work(function, *args):
            thread = threading.Thread(
                target=lambda: self.made.append(function(*args)), daemon=True
            )
            self.threads.append(thread)
            thread.start()
            return thread

        other = Twice()
        other.build((None, 4))
        work(other, np.ones((3, 4), "float32")).join()
        work(record, other, lambda part: isinstance(part, Twice))
        return super().call(x)


def test_another_thread_computes_with_numbers():
    """As a worker of a PyDataset does that augments by layers."""
    before = (
        keras_layer.Node,
        keras.Operation.symbolic_call,
        keras.layers.Layer.__call__,
    )
    layer = Beside()
    layer.build((None, 4))
    recording = record(layer, lambda part: isinstance(part, Twice))
    for thread in layer.threads:
        thread.join()
    numbers, other = layer.made
    assert keras.ops.is_tensor(numbers) and np.isfinite(to_numpy(numbers)).all()
    assert names(recording) == names(other) == ["Dense", "Relu", "Dense", "Add"]
    after = keras_layer.Node, keras.Operation.symbolic_call, keras.layers.Layer.__call__
    assert after == before


@pytest.mark.parametrize("kind", ["dict", "two", "sequential"])
def test_what_a_model_is_called_on(kind):
    one, other = keras.Input((None, 3), name="one"), keras.Input((2,), name="other")
    dense = keras.layers.Dense(2)
    inputs = {"one": one, "other": other} if kind == "dict" else [one, other]
    model = keras.Model(inputs, [dense(one), other * 2.0])
    if kind == "sequential":
        model = keras.Sequential([keras.Input((5, 3)), dense])
    recording = record(model, lambda layer: layer is not dense)
    assert not recording.opaque and "Dense" in names(recording)
    first = (2, 5, 3) if kind == "sequential" else (2, 8, 3)
    (entered, tensors), *_ = recording.entrances
    assert entered is model and tensors[0].shape == first


def test_what_is_unknown_is_told():
    layer = Twice()
    layer.inner.build((None, 4))
    recording = record(layer, lambda layer: isinstance(layer, Twice))
    assert list(recording.opaque) == [layer]
    assert "not known" in str(recording.opaque[layer])


def test_an_example_of_two_arguments_is_not_known():
    layer = keras.layers.MultiHeadAttention(2, 4)
    layer.build((None, 3, 4), (None, 3, 4))
    assert example_arrays(layer) is None


class OfSixteen(keras.layers.Layer):
    """Its code needs a batch of 16."""

    def call(self, x):
        return keras.ops.reshape(keras.ops.reshape(x, (16, 4)), (-1, 4))


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras on torch cannot make the model"
)
def test_what_a_graph_notes_stands_for_what_cannot_be_called():
    inputs = keras.Input((4,))
    sixteen = OfSixteen()
    model = keras.Model(inputs, keras.layers.Dense(2)(sixteen(inputs)))
    recording = record(model, lambda layer: layer is model)
    *_, of_sixteen, dense = recording.calls
    assert of_sixteen.operation is sixteen and not recording.opaque
    assert dense.inputs[0] is of_sixteen.outputs[0]
    assert dense.inputs[0].shape == (16, 4)  # as Keras has noted it
    cause, error = recording.causes[sixteen]
    assert cause is sixteen and isinstance(error, Exception)


def test_what_raised_is_told():
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner, self.sixteen = keras.layers.Dense(4), OfSixteen()

        def build(self, shape):
            self.inner.build(shape)

        def compute_output_shape(self, shape):
            return shape

        def call(self, x):
            return self.inner(self.sixteen(x))

    around = Around()
    around.build((None, 4))
    recording = record(around, lambda layer: layer is around)
    assert list(recording.opaque) == [around] and not recording.called.keys() - {around}
    assert recording.causes[around][0] is around.sixteen


def test_a_call_is_a_function_of_tensors():
    inputs = keras.Input((3,))
    dropped = keras.layers.Dropout(0.5)(inputs * 2.0)
    model = keras.Model(inputs, dropped)
    recording = record(model, lambda layer: layer is model)
    *_, product, dropout = recording.calls
    ones = keras.ops.ones((2, 3))
    assert float(keras.ops.sum(product.function()(ones))) == 12
    assert float(keras.ops.sum(dropout.function(training=False)(ones))) == 6
