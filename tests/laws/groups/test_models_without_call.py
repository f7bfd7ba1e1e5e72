"""What only a `train_step` calls: each model in it is followed by itself."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea.keras_private.symbolic import example_arrays, record
from tests.support.trained_only import MODELS, WIDTH, AutoEncoder, TrainedOnly, net


def taken(model):
    return {ffn.name: ffn.hidden_dim for ffn in ki.find_ffns(model)}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_in_it_is_followed(name):
    """Before it is built, called or trained."""
    explained = ki.explain(MODELS[name]())
    assert list(explained.taken.values()) == [WIDTH, WIDTH]
    known = {
        "it is an output of the model",
        "Add has a number of its own for each neuron",
    }
    others = explained.left_out.keys() - explained.readers.keys()
    assert {explained.left_out[path] for path in others} <= known


class Bare(TrainedOnly):
    """Two layers that the train step calls, and a model; or that hold them too."""

    def __init__(self, shared):
        super().__init__()
        self.first, self.last = layers.Dense(WIDTH, "relu"), layers.Dense(8)
        if shared:
            self.net = keras.Sequential([keras.Input((8,)), self.first, self.last])
        else:
            self.net = net(8, 8, "net")
            self.first.build((None, 8))
            self.last.build((None, WIDTH))


@pytest.mark.parametrize("shared", [False, True])
def test_layers_that_the_train_step_may_call_alone_stay(shared):
    """It may read what the first one makes, though a model holds both."""
    model = Bare(shared)
    explained = ki.explain(model)
    assert explained.taken == ({} if shared else {"net": WIDTH})
    why = explained.left_out[model.first.path]
    assert "what reads it in `train_step` is not known: put the layers in a" in why


class Called(AutoEncoder):
    """Its `call` is one of the four."""

    def __init__(self, kind):
        super().__init__()
        self.built, self.kind = False, kind

    def call(self, x):
        if self.kind == "raises":
            raise NotImplementedError("it is only trained")
        calls = {
            "stub": lambda: x,
            "a part": lambda: self.encoder(x),
            "whole": lambda: self.decoder(self.encoder(x)),
        }
        return calls[self.kind]()


NAMES = {"encoder": WIDTH, "decoder": WIDTH}


@pytest.mark.parametrize(
    ("kind", "found"),
    [("stub", NAMES), ("a part", {"encoder": WIDTH}), ("whole", NAMES)],
)
def test_a_call_says_what_the_model_is_unless_it_calls_nothing(kind, found):
    """What it leaves out may be a teacher; asked before it was called it tells so."""
    model = Called(kind)
    whys = set(ki.explain(model).left_out.values())
    assert not ki.find_ffns(model)
    assert whys == {
        "the model is not built, so its `call` is not known: call it on data (or "
        "remove `call`, if only `train_step` calls the layers)"
    }
    model(np.zeros((2, 8), "float32"))
    assert taken(model) == found
    whys = [why for why in ki.explain(model).left_out.values() if "call" in why]
    assert whys == ["the model's `call` does not call it"] * 2 * (2 - len(found))


def test_a_call_that_raises_is_no_call():
    model = Called("raises")
    model.built = True
    assert taken(model) == NAMES


class Tutor(keras.Model):
    """The `Distiller` of keras.io: the teacher is called in the loss alone."""

    def __init__(self):
        super().__init__()
        self.teacher, self.student = net(8, 8, "teacher"), net(8, 8, "student")

    def compute_loss(self, x=None, y=None, y_pred=None, **arguments):
        return ops.mean(ops.square(self.teacher(x) - y_pred))

    def call(self, x):
        return self.student(x)


def test_a_teacher_is_left_alone():
    model = Tutor()
    model(np.zeros((2, 8), "float32"))
    assert taken(model) == {"student": WIDTH}


class Adds(keras.Model):
    """A loss of its own, of what it makes or of its neurons."""

    def __init__(self, hidden):
        super().__init__()
        self.up, self.down, self.hidden = layers.Dense(WIDTH), layers.Dense(8), hidden

    def call(self, x):
        hidden = self.up(x)
        out = self.down(hidden)
        self.add_loss(ops.mean(ops.square(hidden if self.hidden else out - x)))
        return out


@pytest.mark.parametrize("hidden", [False, True])
def test_losses_that_a_model_adds_are_followed(hidden):
    model = Adds(hidden)
    model(np.zeros((2, 8), "float32"))
    assert list(taken(model).values()) == ([] if hidden else [WIDTH])
    assert not any(isinstance(loss, keras.KerasTensor) for loss in model.losses)


def test_a_call_that_failed_tells_no_inputs():
    """Keras notes that it was built then, and not for what."""
    model = AutoEncoder()
    model.built = False
    with pytest.raises(NotImplementedError):
        model(np.zeros((2, 8), "float32"))
    assert example_arrays(model) is None
    recording = record(model, lambda layer: layer in (model, model.encoder))
    assert recording.holders == [model] and not recording.opaque
    assert [tensor.shape[-1] for tensor in recording.outputs] == [4]
