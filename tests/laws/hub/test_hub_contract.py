"""One contract over every family of KerasHub that can be pruned.

A row trains once: what is checked of it hangs on one `Run`, whose stages are made
when a test first asks for them.
"""

import functools

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import ENDURANCE
from tests.support import algorithm_reference as reference
from tests.support.helpers import LossRecorder, to_numpy
from tests.support.hub_models import (
    FULL,
    MODELS,
    batch,
    tiny_lm,
)
from tests.support.hub_training import (
    FIT,
    SIZE,
    adamw,
    compare_after_a_step,
    compiled,
    foreign,
    logits,
    sgd,
    used,
)

BEGIN, STEPS, TARGET, TOTAL = 1, 8, 10, 12


HALFWAY = 5


# Families that are trained with AdamW and whose every stage is run; of the others only
# what a family can change, with SGD, on torch: compiling them is most of the time.
CORE = ("llama3", "gemma2", "qwen3", "phi3")
# A family of each kind; the others are masked and compacted in `test_untrained`, and
# trained in `make endurance`, on tensorflow all: 40 s; it has test_hub_algorithm.
KINDS = ("llama3", "gemma2", "gemma4", "gpt2", "t5gemma uneven", "gpt oss")
SOME = {"jax": CORE[:1], "tensorflow": (), "torch": KINDS}
TRAINED = tuple(MODELS) if ENDURANCE else SOME[keras.backend.backend()]


class Recorder(LossRecorder):
    """Losses, and what of ours is in the model after each step."""

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.foreign, self.layers, self.variables = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        model = self.model  # on jax this syncs the variables
        # All that prunes is in the optimizer's step, and so in the one compiled.
        self.foreign += foreign(model, model.optimizer, model.train_function)
        self.layers.append(kinds(model))
        self.variables.append([id(variable) for variable in model.variables])


class MaskedRecorder(Recorder):
    """Scores and masks of every step too; a save in the middle of pruning."""

    def __init__(self, x, folder):
        super().__init__()
        self.x, self.folder = x, folder
        self.scores, self.masks, self.used = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        model = self.model
        ffns = ki.find_ffns(model)
        self.scores.append([to_numpy(f.scores) for f in ffns])
        self.masks.append([to_numpy(f.mask) for f in ffns])
        self.used.append([used(f) for f in ffns])
        if len(self.masks) == HALFWAY:
            self.halfway_logits = logits(model, self.x)
            self.halfway_hidden = logits(model.backbone, self.x)
            model.save_weights(self.folder / "halfway.weights.h5")
            model.backbone.save_to_preset(self.folder / "halfway")


def fresh(name):
    """The stock model of a row, its layers named as those of another."""
    keras.utils.clear_session(free_memory=False)
    return tiny_lm(name)


def kinds(model):
    return [type(layer) for layer in model._flatten_layers()]


class Run:
    """What becomes of one row of `MODELS`; each stage is made when asked for."""

    def __init__(self, name, folder):
        self.name, self.row, self.folder = name, MODELS[name], folder
        self.optimizer = adamw if name in CORE else sgd
        self.stock = fresh(name)
        # KerasHub's Llama forgets one of its arguments (`tie_word_embeddings`).
        self.config = {**self.stock.backbone.get_config(), **self.row.arguments}
        self.x, self.y = batch(self.stock, np.random.default_rng(0), SIZE)
        self.data = batch(self.stock, np.random.default_rng(1), TOTAL * SIZE)
        self.width = {k: TARGET * n for k, n in self.row.widths.items()}

    @functools.cached_property
    def masked(self):
        """The model after training with compact="off", and what was recorded."""
        model, record = fresh(self.name), MaskedRecorder(self.x, self.folder)
        self.variables = [id(variable) for variable in model.variables]
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
        compiled(model, self.optimizer()).fit(
            *self.data, callbacks=[prune, record], **FIT
        )
        record.logits = logits(model, self.x)
        record.foreign += foreign(model)
        return model, record

    @functools.cached_property
    def narrow(self):
        """`compact` of the masked model, its logits, and `compact` of it."""
        narrow = ki.compact(self.masked[0])
        return narrow, logits(narrow, self.x), ki.compact(narrow)

    @functools.cached_property
    def generated(self):
        """Token ids that the masked and the narrow model generate."""
        prompt = {k: np.array(v) for k, v in self.x.items()}
        prompt["padding_mask"][:, 3:] = 0
        models = (self.masked[0], self.narrow[0])
        return [m.generate(dict(prompt), stop_token_ids=None) for m in models]

    @functools.cached_property
    def stepped(self):
        """Pairs of variables of the masked and narrow model, after one more step."""
        masked, narrow = self.masked[0], self.narrow[0]
        if self.name in CORE:
            assert self.generated  # needs the models as they are
        data = (self.x, self.y)
        return compare_after_a_step(masked, narrow, data, self.row.packing)

    @functools.cached_property
    def in_fit(self):
        """The model that became narrow in the middle of the same training."""
        model, record = compiled(fresh(self.name), self.optimizer()), Recorder()
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="end")
        model.fit(*self.data, callbacks=[prune, record], **FIT)
        record.foreign += foreign(model)
        return model, record


@pytest.fixture(scope="module", params=TRAINED)
def run(request, tmp_path_factory):
    return Run(request.param, tmp_path_factory.mktemp("run"))


def test_nothing_of_ours_is_in_the_model_at_any_moment(run):
    (model, record), (_, other) = run.masked, run.in_fit
    assert np.std(record.logits) > 0.3  # something to tell apart
    assert record.foreign == other.foreign == []
    assert all(layers == kinds(run.stock) for layers in record.layers + other.layers)
    assert len(record.layers) == len(other.layers) == TOTAL
    # The variables are those that it had before, and they are not moved.
    assert all(held == run.variables for held in record.variables)
    assert [id(variable) for variable in model.variables] == run.variables
    assert model.backbone.get_config() == run.config


def test_every_ffn_is_pruned_as_its_scores_say(run):
    model, record = run.masked
    ffns = ki.find_ffns(model)
    assert [f.width for f in ffns] == [TARGET] * run.row.ffns
    assert len({ffn.name for ffn in ffns}) == run.row.ffns
    active = [np.ones_like(mask) for mask in record.masks[0]]
    for t, (scores, masks) in enumerate(
        zip(record.scores, record.masks, strict=True), start=1
    ):
        for i, (score, mask) in enumerate(zip(scores, masks, strict=True)):
            full = mask.shape[-1]
            keep = reference.kept(t, full, TARGET, BEGIN, STEPS)
            importance = score.astype("float64").max(axis=0)
            # One row, or one an expert: neurons are ranked within it.
            active[i] = np.atleast_2d(active[i])
            rows = zip(np.atleast_2d(importance), np.atleast_2d(mask), strict=True)
            for row, (own, seen) in enumerate(rows):
                own_active = active[i][row]
                best = [k for k in np.argsort(-own, kind="stable") if own_active[k]]
                active[i][row] = np.isin(np.arange(full), best[:keep])
                np.testing.assert_array_equal(seen, active[i][row])
                assert seen.sum() == keep
                # OPT's ReLU leaves some neurons without a gradient.
                assert own[best].min() > 0 or run.name == "opt"
    # Not the first ones, and not the same ones everywhere.
    rows = [tuple(row) for mask in record.masks[-1] for row in np.atleast_2d(mask)]
    assert len(set(rows)) == len(rows) >= run.row.ffns


def test_after_each_step_pruned_neurons_are_zeros(run):
    """In every matrix and bias; in each an active one has a weight."""
    _, record = run.masked
    for masks, parts in zip(record.masks, record.used, strict=True):
        for mask, of_ffn in zip(masks, parts, strict=True):
            assert len(of_ffn) >= 2
            for part in of_ffn:
                np.testing.assert_array_equal(part, mask == 1)


def test_compact_keeps_the_logits(run):
    (_, received, _), (_, record) = run.narrow, run.masked
    np.testing.assert_allclose(received, record.logits, rtol=0, atol=1e-5)


def test_compact_gives_a_stock_model(run):
    narrow, _, _ = run.narrow
    assert type(narrow) is type(run.stock)
    assert type(narrow.backbone) is type(run.stock.backbone)
    assert foreign(narrow) == []
    assert kinds(narrow) == kinds(run.stock)
    assert narrow.backbone.get_config() == {**run.config, **run.width}
    wide, slim = (m.backbone.count_params() for m in (run.stock, narrow))
    assert slim < wide


def test_compact_twice_is_compact_once(run):
    _, once, again = run.narrow
    assert type(again) is type(run.stock)
    np.testing.assert_array_equal(logits(again, run.x), once)
    assert again.backbone.get_config() == {**run.config, **run.width}


def test_the_next_train_step_is_the_same(run):
    for masked, narrow in run.stepped:
        scale = max(1.0, np.abs(masked).max())
        np.testing.assert_allclose(narrow, masked, rtol=0, atol=1e-6 * scale)


def test_compaction_in_fit_keeps_the_losses(run):
    (model, record), (_, masked_record) = run.in_fit, run.masked
    np.testing.assert_allclose(record.losses, masked_record.losses, rtol=0, atol=1e-5)
    assert {(f.hidden_dim, f.width) for f in ki.find_ffns(model)} == {(TARGET, TARGET)}


def test_compaction_in_fit_leaves_presets_of_the_stock_class(run):
    backbone = run.in_fit[0].backbone
    assert type(backbone) is type(run.stock.backbone)
    assert backbone.get_config() == {**run.config, **run.width}
    backbone.save_to_preset(run.folder / "narrow")
    loaded = type(backbone).from_preset(str(run.folder / "narrow"))
    assert loaded.get_config() == {**run.config, **run.width}
    assert foreign(loaded) == []
    expected = logits(backbone, run.x)
    np.testing.assert_allclose(logits(loaded, run.x), expected, rtol=0, atol=1e-6)
    by_config = type(backbone).from_config(backbone.get_config())
    backbone.save_weights(run.folder / "narrow.weights.h5")
    by_config.load_weights(run.folder / "narrow.weights.h5")
    np.testing.assert_allclose(logits(by_config, run.x), expected, rtol=0, atol=1e-6)


def test_what_is_saved_in_mid_pruning_loads_into_a_stock_model(run):
    _, record = run.masked
    assert TARGET < record.masks[HALFWAY - 1][0].sum(-1).max() < FULL
    stock = tiny_lm(run.name)
    stock.load_weights(run.folder / "halfway.weights.h5")
    np.testing.assert_allclose(
        logits(stock, run.x), record.halfway_logits, rtol=0, atol=1e-6
    )
    loaded = type(stock.backbone).from_preset(str(run.folder / "halfway"))
    assert loaded.get_config() == run.config and foreign(loaded) == []
    np.testing.assert_allclose(
        logits(loaded, run.x), record.halfway_hidden, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("run", sorted({*CORE} & {*TRAINED}), indirect=True)
def test_the_same_tokens_are_generated(run):
    masked, narrow = run.generated
    np.testing.assert_array_equal(masked["token_ids"], narrow["token_ids"])
    assert len(np.unique(masked["token_ids"][:, 3:])) > 2
