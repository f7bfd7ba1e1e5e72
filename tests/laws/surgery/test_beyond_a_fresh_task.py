"""KerasHub models beyond a fresh task: trained before, nested, sharded, saved whole."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import ENDURANCE
from tests.support.helpers import LossRecorder, to_numpy
from tests.support.hub_models import VOCABULARY, batch, tiny_backbone, tiny_lm
from tests.support.hub_training import foreign, prune_at_random
from tests.support.masks import prune_by_hand

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
QUIET = {"batch_size": 4, "shuffle": False, "verbose": 0}


@pytest.fixture
def lm():
    model = tiny_lm("llama3")
    model.compile(keras.optimizers.AdamW(1e-2), LOSS)
    return model


def data(model, size=16):
    return batch(model, np.random.default_rng(0), size=size)


def test_a_trained_model_is_pruned_as_its_optimizer_stands(lm):
    """Its moments and count of steps are kept; the first steps are as without us."""
    x, y = data(lm)
    twin = tiny_lm("llama3")
    twin.compile(keras.optimizers.AdamW(1e-2), LOSS)
    for model in (lm, twin):
        model.fit(x, y, **QUIET)
    start = int(lm.optimizer.iterations)
    prune = ki.IdeaPruneCallback(12, begin_step=start + 3, prune_steps=1)
    losses, expected = LossRecorder(), LossRecorder()
    lm.fit(x, y, callbacks=[prune, losses], **QUIET)
    twin.fit(x, y, callbacks=[expected], **QUIET)
    # The loss of a step is that of the weights before it.
    np.testing.assert_allclose(losses.losses, expected.losses, rtol=1e-6)
    assert int(lm.optimizer.iterations) == start + 4
    assert {ffn.hidden_dim for ffn in ki.find_ffns(lm)} == {12}
    lm.fit(x, y, **QUIET)


def test_a_backbone_inside_a_model():
    backbone = tiny_backbone("llama3")
    inputs = {
        k: keras.Input(v.shape[1:], dtype=v.dtype, name=k)
        for k, v in backbone.input.items()
    }
    outputs = keras.layers.Dense(VOCABULARY)(backbone(inputs))
    model = keras.Model(inputs, outputs)
    x, y = data(backbone)
    model.compile("adamw", LOSS)
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
    prune_at_random(lm, 12)
    graph = keras.Model(lm.input, lm.output)
    narrow = ki.compact(graph)
    assert (
        narrow.count_params() == tiny_lm("llama3", intermediate_dim=12).count_params()
    )
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), graph.predict(x, verbose=0), atol=1e-5
    )


@pytest.mark.parametrize("compact", ["end", "off"])
def test_a_whole_saved_model_is_stock(lm, compact, tmp_path):
    """Narrow, or masked: then its width is read off its zeros."""
    x, y = data(lm)
    prune = ki.IdeaPruneCallback(12, begin_step=1, prune_steps=2, compact=compact)
    lm.fit(x, y, callbacks=[prune], **QUIET)
    lm.save(tmp_path / "lm.keras")
    loaded = keras.models.load_model(tmp_path / "lm.keras", compile=False)
    assert type(loaded) is type(lm) and foreign(loaded) == []
    ffns = ki.find_ffns(loaded)
    assert {ffn.hidden_dim for ffn in ffns} == {12 if compact == "end" else 24}
    assert [ffn.width for ffn in ffns] == [12, 12]
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), lm.predict(x, verbose=0)
    )
    narrow = ki.compact(loaded)
    assert narrow.backbone.intermediate_dim == 12
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), lm.predict(x, verbose=0), atol=1e-5
    )


def test_unequal_widths_are_rejected(lm):
    for ffn, active in zip(ki.find_ffns(lm), (12, 13), strict=True):
        prune_by_hand(ffn, np.arange(24) < active)
    with pytest.raises(ValueError, match="holds one intermediate_dim"):
        ki.compact(lm)


def test_ffns_that_are_left_out_would_be_wider(lm):
    x, y = data(lm)
    first = ki.find_ffns(lm)[0].name
    before = [to_numpy(variable) for variable in lm.variables]
    prune = ki.IdeaPruneCallback(12, 1, 2, groups=lambda ffn: ffn.name == first)
    with pytest.raises(ValueError, match="holds one intermediate_dim"):
        lm.fit(x, y, callbacks=[prune], **QUIET)
    for old, variable in zip(before, lm.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))


def test_a_copy_that_computes_something_else_is_rejected(lm, monkeypatch):
    """Here one whose last norm is wrong by more than float32 rounds."""
    original = type(lm.backbone).from_config.__func__

    def from_config(cls, config):
        made = original(cls, config)
        norm = made.layers[-1]
        norm.call = lambda x: 1.0002 * type(norm).call(norm, x)
        return made

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
