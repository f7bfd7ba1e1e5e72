"""What `fit` does to a model between two steps is done whole, or not at all.

Ctrl-C comes in the midst of it, as a real signal; or a cut finds no memory.
"""

import os
import signal

import keras
import numpy as np
import pytest

import keras_idea as ki
import keras_idea._surgery.narrow_in_place as place
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, to_numpy
from tests.support.ways_to_train import FIT

# 8 batches an epoch: pruning ends within the second.
BEGIN, STEPS, TARGET, END = 2, 8, 4, 10
LAYERS = {"stock": dense_gated, "own": ki.PrunableGatedFFN}


@pytest.fixture(autouse=True)
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, whatever the tests were begun under."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def at_call(number, act, function):
    """A function that does something else first when it is called for the nth time."""
    calls = []

    def called(*args, **kwargs):
        calls.append(args)
        if len(calls) == number:
            act()
        return function(*args, **kwargs)

    return called


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def no_memory():
    raise MemoryError


def made(ffn, data, steps=None, **how):
    """A model and what prunes it; trained for so many steps, if they are given."""
    keras.utils.set_random_seed(0)
    model = residual_model((16, 12), ffn=LAYERS[ffn], use_bias=True)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, **how)
    if steps is not None:
        # In one epoch, at the end of which comes what is due.
        x, y = (
            np.concatenate([part] * 2)[: steps * FIT["batch_size"]] for part in data
        )
        model.fit(x, y, callbacks=[prune], **FIT)
    return model, prune


def arrays(model):
    return [to_numpy(v) for v in [*model.variables, *model.optimizer.variables]]


def assert_usable(model, prune, data):
    """It predicts, saves, compacts, and is trained again, as any other."""
    found = model.predict(data[0], verbose=0)
    assert np.isfinite(found).all()
    compact = ki.compact(model).predict(data[0], verbose=0)
    np.testing.assert_allclose(compact, found, atol=1e-5)
    model.fit(*data, epochs=1, callbacks=[prune], **FIT)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [TARGET, TARGET]


@pytest.mark.parametrize("cut, ffn", [(3, "stock"), (8, "own")])
def test_ctrl_c_while_it_narrows(ffn, cut, data, monkeypatch):
    model, prune = made(ffn, data)
    slow = at_call(cut, interrupt, place.narrow_variable)
    monkeypatch.setattr(place, "narrow_variable", slow)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, epochs=4, callbacks=[prune], **FIT)
    monkeypatch.undo()
    prune.on_train_end()
    # All that a run has at this step which was not interrupted.
    expected, _ = made(ffn, data, steps=END)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(expected)] == [TARGET, TARGET]
    for one, other in zip(arrays(model), arrays(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert_usable(model, prune, data)


@pytest.mark.parametrize("cut, ffn", [(12, "stock"), (3, "own")])
def test_no_memory_while_it_narrows(ffn, cut, data, monkeypatch):
    """The model is as wide as it was, masked, with the moments of its neurons."""
    model, prune = made(ffn, data)
    full = at_call(cut, no_memory, place.narrow_variable)
    monkeypatch.setattr(place, "narrow_variable", full)
    with pytest.raises(MemoryError):
        model.fit(*data, epochs=4, callbacks=[prune], **FIT)
    monkeypatch.undo()
    prune.on_train_end()
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 12]
    expected, _ = made(ffn, data, steps=END, compact="off")
    for one, other in zip(arrays(model), arrays(expected), strict=True):
        assert one.shape == other.shape
    for ours, theirs in zip(ki.find_ffns(model), ki.find_ffns(expected), strict=True):
        active = theirs.kept_neurons()
        np.testing.assert_array_equal(ours.kept_neurons(), active)
        np.testing.assert_array_equal(ours.original_indices, theirs.original_indices)
        for one, other in zip(ours.cuts(), theirs.cuts(), strict=True):
            np.testing.assert_allclose(
                to_numpy(one.variable), to_numpy(other.variable), atol=1e-6
            )
    narrow = [arrays(ki.compact(each)) for each in (model, expected)]
    for one, other in zip(*narrow, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert_usable(model, prune, data)
