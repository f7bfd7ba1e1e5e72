"""Conversions beyond a fresh task: trained, wrapped, sharded, saved whole."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import ENDURANCE
from tests.support.helpers import to_numpy
from tests.support.hub_models import VOCABULARY, batch, tiny_backbone, tiny_lm

some = pytest.mark.daily(
    "jax", "torch", why="tensorflow takes 7 s; layers are moved in Python"
)


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
QUIET = {"batch_size": 4, "shuffle": False, "verbose": 0}


@pytest.fixture
def lm():
    model = tiny_lm("llama3")
    model.compile(keras.optimizers.AdamW(1e-2), LOSS)
    return model


def data(model, size=16):
    return batch(model, np.random.default_rng(0), size=size)


def test_a_trained_model_keeps_its_optimizer_state(lm):
    x, y = data(lm)
    twin = tiny_lm("llama3")
    twin.compile(keras.optimizers.AdamW(1e-2), LOSS)
    for model in (lm, twin):
        model.fit(x, y, **QUIET)
    ki.make_prunable(lm)
    assert int(lm.optimizer.iterations) == 4
    for model in (lm, twin):
        model.fit(x, y, **QUIET)
    stock = [v for v in lm.trainable_variables if not v.overwrite_with_gradient]
    for ours, theirs in zip(stock, twin.trainable_variables, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-6)


def test_converting_under_a_built_optimizer(lm):
    x, y = data(lm)
    lm.fit(x, y, **QUIET)
    ki.make_prunable(lm.backbone)  # it does not know of the task's optimizer
    start = int(lm.optimizer.iterations)
    prune = ki.IdeaPruneCallback(12, begin_step=start + 1, prune_steps=1)
    lm.fit(x, y, callbacks=[prune], epochs=2, **QUIET)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(lm)} == {12}


@some
def test_a_backbone_inside_a_model():
    backbone = tiny_backbone("llama3")
    inputs = {
        k: keras.Input(v.shape[1:], dtype=v.dtype, name=k)
        for k, v in backbone.input.items()
    }
    outputs = keras.layers.Dense(VOCABULARY)(backbone(inputs))
    model = keras.Model(inputs, outputs)
    x, y = data(backbone)
    ki.make_prunable(model).compile("adamw", LOSS)
    prune = ki.IdeaPruneCallback(12, begin_step=1, prune_steps=2)
    model.fit(x, y, callbacks=[prune], **QUIET)
    narrow = ki.compact(model)
    found = next(x for x in narrow.layers if type(x) is type(backbone))
    assert found is not backbone
    assert found.get_config()["intermediate_dim"] == 12
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5
    )


def test_a_graph_that_shares_the_embedding_with_its_backbone(lm):
    x, _ = data(lm)
    graph = ki.make_prunable(keras.Model(lm.input, lm.output))
    narrow = ki.compact(graph)
    assert narrow.count_params() == tiny_lm("llama3").count_params()
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), graph.predict(x, verbose=0), atol=1e-5
    )


@some
def test_a_whole_saved_model_is_stock(lm, tmp_path):
    x, y = data(lm)
    ki.make_prunable(lm)
    prune = ki.IdeaPruneCallback(12, begin_step=1, prune_steps=2)
    lm.fit(x, y, callbacks=[prune], **QUIET)
    lm.save(tmp_path / "lm.keras")
    loaded = keras.models.load_model(tmp_path / "lm.keras", compile=False)
    assert type(loaded) is type(lm)
    assert ki.find_ffns(loaded) == []
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), lm.predict(x, verbose=0)
    )


def test_weights_of_a_layer_are_variables_outside_a_forward_pass(lm):
    ki.make_prunable(lm)
    dense = lm.backbone.transformer_layers[0]._feedforward_output_dense
    assert dense.kernel is dense._kernel


def test_unequal_widths_are_refused(lm):
    ki.make_prunable(lm)
    first, second = ki.find_ffns(lm)
    first.mask.assign(np.arange(24) < 12)
    second.mask.assign(np.arange(24) < 13)
    with pytest.raises(ValueError, match="holds one intermediate_dim"):
        ki.compact(lm)


def test_a_copy_that_computes_something_else_is_refused(lm, monkeypatch):
    """Here a constructor that ignores what its config says."""
    ki.make_prunable(lm)
    original = type(lm.backbone).from_config.__func__

    def from_config(cls, config):
        return original(cls, {**config, "rope_max_wavelength": 3})

    monkeypatch.setattr(type(lm.backbone), "from_config", classmethod(from_config))
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(lm)


SHARDED = """
import keras, numpy as np
import keras_idea as ki
from tests.support.helpers import LossRecorder
from tests.support.hub_models import batch, tiny_lm

def run():
    lm = tiny_lm("llama3", num_key_value_heads=2)
    lm.compile(
        keras.optimizers.AdamW(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    ki.make_prunable(lm)
    x, y = batch(lm, np.random.default_rng(0), size=64)
    recorder = LossRecorder()
    prune = ki.IdeaPruneCallback(12, 2, 4)
    lm.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[prune, recorder])
    kernel = ki.find_ffns(lm)[0].kernels[0]
    assert kernel.shape == (16, 12)
    return np.array(recorder.losses), str(kernel.value.sharding), type(lm.backbone)

one, _, backbone = run()
mesh = keras.distribution.DeviceMesh((2, 2), ["batch", "model"])
layouts = backbone.get_layout_map(mesh)
keras.distribution.set_distribution(
    keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
four, layout, _ = run()
np.testing.assert_allclose(four, one, rtol=1e-4)
assert "'batch', 'model'" in layout, layout
"""


@pytest.mark.skipif(
    keras.backend.backend() != "jax" or not ENDURANCE,
    reason="Keras has it on jax only; in `make endurance`, the suite has our layouts",
)
def test_model_parallel_keeps_kerashubs_layouts():
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", SHARDED]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
