"""What only a `train_step` calls: each model in it is followed by itself."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.trained_only import MODELS, WIDTH, AutoEncoder


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
    [
        ("stub", NAMES),
        ("a part", {"encoder": WIDTH}),
        ("whole", {"encoder/dense": WIDTH, "encoder/dense_1": 4, "decoder": WIDTH}),
    ],
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
    assert whys == ["the model's `call` does not call it"] * 2 * (
        2 - min(2, len(found))
    )


def test_a_call_that_raises_is_no_call():
    model = Called("raises")
    model.built = True
    assert taken(model) == NAMES
