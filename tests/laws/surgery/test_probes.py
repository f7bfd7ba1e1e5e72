"""Probes hung into a model in mid-training, and taken off, under every optimizer."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Activation
from keras_idea.methods.method import Job
from keras_idea.surgery.probes import attach_probes, check_probes, detach_probes
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, to_numpy
from tests.support.optimizers import OPTIMIZERS, WHOLE_MATRIX

NAMES = sorted({*OPTIMIZERS, *WHOLE_MATRIX} - {"accumulated"})


def attach(model, ffns):
    jobs = [Job(ffn, i, 4, 1000, 1) for i, ffn in enumerate(ffns)]
    probes = Activation(num_samples=64).make_probes(jobs)
    attach_probes(model, zip(ffns, probes, strict=True))
    return probes


@pytest.mark.parametrize(
    "ffn, name",
    [
        *((ki.PrunableGatedFFN, name) for name in NAMES),
        *((dense_gated, name) for name in ("sgd", "loss scale", "muon")),
    ],
)
def test_training_goes_on_as_without(ffn, name, data):
    """A probe that only looks changes no step; the optimizer stays the same object."""
    losses = []
    for probed in (False, True):
        keras.utils.set_random_seed(0)
        model = residual_model((16,), ffn=ffn)
        stock = [type(layer) for layer in model.layers]
        optimizer = {**OPTIMIZERS, **WHOLE_MATRIX}[name]()
        model.compile(optimizer, "mse")
        ffns = ki.find_ffns(model)
        losses.append([model.train_on_batch(*data) for _ in range(2)])
        if probed:
            (probe,) = attach(model, ffns)
            for whole in (ffns[0].layer, model)[not ffns[0].masks_itself :]:
                with pytest.raises(ValueError, match="still has the probe.*before"):
                    ki.compact(whole)
            assert ffns[0].state.probe is probe and len(probe.variables) == 3
            assert all(v.path.startswith("ffn_0") for v in probe.variables)
            assert {id(v) for v in probe.variables} <= set(map(id, model.variables))
        losses[-1] += [model.train_on_batch(*data) for _ in range(2)]
        if probed:
            detach_probes(model, ffns)
            assert model.optimizer is optimizer
            assert [type(layer) for layer in model.layers] == stock
            trained = optimizer._trainable_variables
            assert list(map(id, trained)) == list(map(id, model.trainable_variables))
        losses[-1] += [model.train_on_batch(*data) for _ in range(2)]
        if probed:
            assert probe.steps == 2
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_before_the_optimizer_is_built(data):
    model = residual_model((16,))
    model.compile("adam", "mse")
    (probe,) = attach(model, ki.find_ffns(model))
    model.train_on_batch(*data)
    detach_probes(model, ki.find_ffns(model))
    detach_probes(model, ki.find_ffns(model))  # nothing is left to take off
    model.train_on_batch(*data)
    assert to_numpy(probe._samples) == 0  # it was not due yet


def test_optimizers_that_cannot_take_further_variables():
    ffns = ki.find_ffns(residual_model((16,)))
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=3)
    with pytest.raises(ValueError, match="'some'.*gradient_accumulation_steps=3"):
        check_probes(ffns, optimizer, "some")
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3"):
        check_probes(ffns, scaled, "some")
    check_probes(ffns, None, "some")
