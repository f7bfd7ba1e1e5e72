"""Mixtures of experts in whole runs, and what of them is rejected."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._surgery.optimizer_state import slots_of
from tests.support.helpers import to_numpy
from tests.support.hub_gradients import LOSS, sliced
from tests.support.hub_models import FULL, batch, tiny_lm
from tests.support.masks import prune_by_hand

BEGIN, STEPS, TARGET, TOTAL, SIZE = 2, 6, 10, 10, 2


FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


def trained(name, compact="off", optimizer=None, method="sensitivity", callbacks=()):
    """A stock model, pruned in three epochs, and its history."""
    model = tiny_lm(name)
    optimizer = optimizer or keras.optimizers.AdamW(0.002, epsilon=1e-4)
    model.compile(optimizer, LOSS, weighted_metrics=None)
    x, y = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(TARGET, 2, 6, compact=compact, method=method)
    history = model.fit(x, y, epochs=3, callbacks=[prune, *callbacks], **FIT)
    return model, history.history, (x, y)


@pytest.mark.parametrize(
    "name", ["qwen moe", pytest.param("gpt oss", marks=pytest.mark.daily())]
)
def test_narrow_in_the_middle_of_fit(name):
    """Milestones change nothing."""
    masked, losses, (x, _) = trained(name)
    narrow, others, _ = trained(name, "progressive")
    np.testing.assert_allclose(others["loss"], losses["loss"], rtol=0, atol=1e-5)
    for ffn, other in zip(ki.find_ffns(narrow), ki.find_ffns(masked), strict=True):
        assert ffn.hidden_dim == ffn.width == other.width == TARGET
        np.testing.assert_array_equal(ffn.original_indices, other.kept_neurons())
    found, expected = (m.predict(x, verbose=0) for m in (narrow, masked))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.daily()
@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe"])
def test_slots_follow(name):
    """Each of the optimizer's slots is the wide one's, at the neurons kept."""
    model, _, _ = trained(name, optimizer=keras.optimizers.Muon(0.01))
    narrow = ki.compact(model)
    ffns = ki.find_ffns(model)
    kept = [{id(c.variable): f.kept_neurons() for c in f.cuts()} for f in ffns]
    kept = {key: value for of_ffn in kept for key, value in of_ffn.items()}
    cut = 0
    for variable, other in zip(
        model.trainable_variables, narrow.trainable_variables, strict=True
    ):
        pairs = slots_of(model.optimizer, variable), slots_of(narrow.optimizer, other)
        for one, two in zip(*pairs, strict=True):
            value = to_numpy(one)
            for axis in range(len(one.shape)):
                if one.shape[axis] != two.shape[axis]:
                    value = sliced(value, kept[id(variable)], axis, "halves")
                    cut += 1
            np.testing.assert_array_equal(to_numpy(two), value)
    assert cut >= 4


class StopAfter(keras.callbacks.Callback):
    """Ends the first part of a run at the end of its first epoch."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.parts == 0


@pytest.mark.daily()
def test_a_run_goes_on(tmp_path):
    """A checkpoint of experts that are narrow already, and scores of all of them."""
    whole, _, (x, y) = trained("gpt oss", "progressive")
    for first in (0, 1):
        prune = ki.IdeaPruneCallback(TARGET, 2, 6, compact="progressive")
        saved, stop = ki.Checkpoint(tmp_path), StopAfter(first)
        model = tiny_lm("gpt oss")
        model.compile(keras.optimizers.AdamW(0.002, epsilon=1e-4), LOSS)
        assert saved.restore(model) == first
        callbacks = [prune, saved, stop]
        model.fit(x, y, epochs=3, initial_epoch=first, callbacks=callbacks, **FIT)
    for one, two in zip(whole.variables, model.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))


def test_random_keeps_as_many_of_each_expert():
    model, _, _ = trained("mixtral", method="random")
    kept = [ffn.kept_neurons() for ffn in ki.find_ffns(model)]
    assert {k.shape for k in kept} == {(4, TARGET)}
    assert len({tuple(row) for k in kept for row in k}) == 8


def test_up_is_the_activated_matrix_and_gate_the_linear_one():
    """The linear half doubled, down halved: the same. The activated one: another."""
    model = tiny_lm("qwen3 moe", mlp_only_layers=[])
    x, _ = batch(model, np.random.default_rng(0), 4)
    before = to_numpy(model(x))
    for half, same in ((1, True), (0, False)):
        for ffn in ki.find_ffns(model):
            first, down = ffn.kernels
            value = to_numpy(first)
            value[..., half * FULL : (half + 1) * FULL] *= 2.0
            first.assign(value)
            down.assign(to_numpy(down) / 2.0)
        alike = np.allclose(to_numpy(model(x)), before, rtol=0, atol=1e-5)
        assert alike == same


@pytest.mark.daily()
def test_watched(tmp_path):
    """Monitor, and readings of neurons whose experts were narrowed."""
    pytest.importorskip("tensorboardX")
    watch = ki.Monitor(tmp_path, neurons_every=2)
    model, history, _ = trained("mixtral", "progressive", callbacks=[watch])
    assert history["width"][-1] == TARGET
    ffn = ki.find_ffns(model)[0]
    values = np.arange(4 * TARGET, dtype="float32").reshape(4, TARGET)
    every = ffn.by_original_index(values)
    assert every.shape == (4, FULL) and np.isnan(every).sum() == 4 * (FULL - TARGET)
    index = ffn.original_indices
    np.testing.assert_array_equal(np.take_along_axis(every, index, 1), values)


@pytest.mark.daily()
def test_an_expert_that_no_token_comes_to():
    model = tiny_lm("gpt oss")
    for block in model.backbone.transformer_layers:
        router = block.sparse_moe_block.router.router_dense.bias
        router.assign(to_numpy(router) - [0.0, 0.0, 1e3, 0.0])
    model.compile(keras.optimizers.SGD(0.01), LOSS, weighted_metrics=None)
    x, y = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(TARGET, 1, 3)
    with pytest.warns(UserWarning, match=r"No token has come to experts \[2\] of"):
        model.fit(x, y, callbacks=[prune], **FIT)
    kept = ki.find_ffns(model)[0].original_indices
    assert kept[2].tolist() == list(range(TARGET)) != kept[0].tolist()


class TestRejected:
    def test_the_largest_weight_of_a_row(self):
        by_weight = ki.methods.Sensitivity(row_reduce="max")
        with pytest.raises(ValueError, match="must be 'mean' for a mixture of experts"):
            trained("mixtral", method=by_weight)

    def test_a_method_that_reads_the_hidden_activations(self):
        x, _ = batch(tiny_lm("mixtral"), np.random.default_rng(0), 4)
        method = ki.methods.Activation(x)
        with pytest.raises(ValueError, match="hidden activations of"):
            trained("mixtral", method=method)

    def test_experts_of_unlike_widths(self):
        model = tiny_lm("mixtral")
        mask = np.ones((4, FULL), "float32")
        mask[1, :3] = 0.0
        prune_by_hand(ki.find_ffns(model)[0], mask)
        with pytest.raises(ValueError, match="have .24, 21, 24, 24. active neurons"):
            ki.compact(model)

    @pytest.mark.daily()
    def test_a_file_of_another_width(self, tmp_path):
        narrow, _, _ = trained("gpt oss", "end")
        narrow.save_weights(tmp_path / "narrow.weights.h5")
        with pytest.raises(ValueError, match="must match"):
            tiny_lm("gpt oss").load_weights(tmp_path / "narrow.weights.h5")
        again = tiny_lm("gpt oss", intermediate_dim=TARGET)
        again.load_weights(tmp_path / "narrow.weights.h5")
        for one, two in zip(again.variables, narrow.variables, strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(two))
