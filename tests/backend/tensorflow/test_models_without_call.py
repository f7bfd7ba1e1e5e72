"""TensorFlow alone trains a model that is not built: what only `train_step` calls."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.trained_only import WIDTH, AutoEncoder


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


@pytest.mark.parametrize(
    "first", ["a fit", pytest.param("a call", marks=pytest.mark.daily())]
)
def test_whatever_came_before(first, x):
    model = AutoEncoder()
    model.compile("adam")
    before(model, x, first)
    assert fitted(model, x) == [4, 4]


class NotCalled(AutoEncoder):
    """A `call` that nobody uses in training."""

    def call(self, x):
        return self.encoder(x)


@pytest.mark.parametrize(
    ("cls", "first", "words"),
    [
        (NotCalled, "nothing", "is not built"),
    ],
)
def test_what_is_still_unknown_is_told(cls, first, words, x):
    model = cls()
    model.compile("adam")
    before(model, x, first)
    with pytest.raises(ki.KerasIdeaError, match=words):
        fitted(model, x)
    assert all(ffn.width == WIDTH for ffn in ki.find_ffns(model))
