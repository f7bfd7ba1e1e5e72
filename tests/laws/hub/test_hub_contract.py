"""What a stock KerasHub model stays while it is pruned: what no law asks."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import MIXTURES, MODELS, batch, tiny_lm
from tests.support.hub_training import (
    FIT,
    SIZE,
    compiled,
    foreign,
    logits,
    sgd,
)

BEGIN, STEPS, TARGET, TOTAL, HALFWAY = 1, 8, 10, 12, 5
UNGATED = ("gpt2", "opt", "gpt neox", "bloom", "falcon", "bart", "t5 plain")
KINDS = ("llama3", "gemma2")


def daily(names, wanted):
    """Rows of which `make test` runs some, and `make endurance` all."""
    nightly = pytest.mark.daily()
    return [pytest.param(n, marks=() if n in wanted else nightly) for n in names]


def kinds(model):
    return [type(layer) for layer in model._flatten_layers()]


class Recorder(keras.callbacks.Callback):
    """What of ours is in the model after each step; a save in mid-pruning."""

    def __init__(self, x, folder):
        super().__init__()
        self.x, self.folder, self.foreign, self.layers = x, folder, [], []

    def on_train_batch_end(self, batch, logs=None):
        model = self.model
        # All that prunes is in the optimizer's step, and so in the one compiled.
        self.foreign += foreign(model, model.optimizer, model.train_function)
        self.layers.append(kinds(model))
        if batch + 1 == HALFWAY:
            self.logits = logits(model, self.x)
            model.save_weights(self.folder / "halfway.weights.h5")
            model.backbone.save_to_preset(self.folder / "halfway")


@pytest.mark.parametrize("name", daily(MODELS, KINDS))
def test_it_is_stock_at_any_moment(name, tmp_path):
    """Its layers, its files in mid-pruning, the preset of the narrow one."""
    row, made = MODELS[name], []
    for _ in range(2):  # with the same names
        keras.utils.clear_session(free_memory=False)
        made.append(tiny_lm(name))
    model, stock = made
    # KerasHub's Llama forgets one of its arguments (`tie_word_embeddings`).
    config = {**stock.backbone.get_config(), **row.arguments}
    x, _ = batch(stock, np.random.default_rng(0), SIZE)
    data = batch(stock, np.random.default_rng(1), TOTAL * SIZE)
    prune, record = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS), Recorder(x, tmp_path)
    compiled(model, sgd()).fit(*data, callbacks=[prune, record], **FIT)
    assert record.foreign == foreign(model) == []
    assert record.layers == [kinds(stock)] * TOTAL

    stock.load_weights(tmp_path / "halfway.weights.h5")
    np.testing.assert_allclose(logits(stock, x), record.logits, rtol=0, atol=1e-6)
    cls = type(stock.backbone)
    assert cls.from_preset(str(tmp_path / "halfway")).get_config() == config

    narrow = {**config, **{k: TARGET * n for k, n in row.widths.items()}}
    model.backbone.save_to_preset(tmp_path / "narrow")
    loaded = cls.from_preset(str(tmp_path / "narrow"))
    assert model.backbone.get_config() == loaded.get_config() == narrow
    assert foreign(loaded) == []
    expected = logits(model.backbone, x)
    np.testing.assert_allclose(logits(loaded, x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", daily([n for n in MODELS if n not in UNGATED + MIXTURES], KINDS)
)
def test_up_is_the_activated_matrix_and_gate_the_linear_one(name):
    """To turn the signs of gate and down changes nothing; of up and down, a lot."""
    model = tiny_lm(name)
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    before = logits(model, x)
    for matrix, same in ((1, True), (0, False)):
        for ffn in ki.find_ffns(model):
            cuts = [cut.variable for cut in ffn.cuts()]
            kernels, biases = cuts[:3], cuts[3:]  # biases of up and gate, if any
            for variable in (kernels[matrix], kernels[2], *biases[matrix:][:1]):
                variable.assign(-to_numpy(variable))
        assert np.allclose(logits(model, x), before, rtol=0, atol=1e-5) == same
