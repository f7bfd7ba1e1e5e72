"""TensorFlow alone trains a model that is not built: what only `train_step` calls."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.trained_only import WIDTH, AutoEncoder, Patches, TrainedOnly, net

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="others build every model first"
)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(32, 8)).astype("float32")


def fit(model, x, callbacks=()):
    model.fit(x, batch_size=8, epochs=2, verbose=0, callbacks=list(callbacks))


def fitted(model, x):
    begin = int(model.optimizer.iterations) + 2
    fit(model, x, [ki.IdeaPruneCallback(4, begin, 4)])
    return [ffn.hidden_dim for ffn in ki.find_ffns(model)]


def before(model, x, first):
    if first == "a fit":
        fit(model, x)
    if first == "a call":  # Keras says that there is none
        with pytest.raises(NotImplementedError):
            model(x[:8])
    if first == "by hand":
        model.built = True


@pytest.mark.parametrize("first", ["nothing", "a fit", "a call", "by hand"])
def test_whatever_came_before(first, x):
    model = AutoEncoder()
    model.compile("adam")
    before(model, x, first)
    assert fitted(model, x) == [4, 4]


class Untouched(layers.Layer):
    """Has no weights, and nobody calls it before the train step."""

    def call(self, x):
        return x


class Late(AutoEncoder):
    def __init__(self):
        super().__init__()
        self.untouched = Untouched()

    def loss_of(self, x):
        return super().loss_of(self.untouched(x))


class Empty(TrainedOnly):
    """A part whose weights the first step would make."""

    def __init__(self):
        super().__init__()
        self.net, self.patches = net(8, 8, "net"), Patches()

    def loss_of(self, x):
        return keras.ops.mean(self.net(keras.ops.mean(self.patches(x)[1], axis=1)))


class NotCalled(AutoEncoder):
    """A `call` that nobody uses in training."""

    def call(self, x):
        return self.encoder(x)


@pytest.mark.parametrize("first", ["nothing", "a fit"])
def test_parts_that_the_first_step_builds(first, x):
    model = Late()
    model.compile("adam")
    before(model, x, first)
    assert fitted(model, x) == [4, 4]


@pytest.mark.parametrize(
    ("cls", "first", "words"),
    [
        (Empty, "nothing", "Layer 'patches' is built inside its first train step"),
        (NotCalled, "nothing", "is not built, so its `call` is not known: call it on"),
        (NotCalled, "a fit", "is not built, so its `call` is not known: call it on"),
    ],
)
def test_what_is_still_unknown_is_told(cls, first, words, x):
    model = cls()
    model.compile("adam")
    before(model, x, first)
    with pytest.raises(ki.KerasIdeaError, match=words):
        fitted(model, x)
    assert all(ffn.width == WIDTH for ffn in ki.find_ffns(model))


def test_an_optimizer_is_asked_for(x):
    model = AutoEncoder()
    model.compile(optimizer=None)
    with pytest.raises(ki.KerasIdeaError, match="is not compiled with an optimizer"):
        fit(model, x, [ki.IdeaPruneCallback(4, 2, 4)])
