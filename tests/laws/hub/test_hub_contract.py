"""One contract over every family of KerasHub that can be pruned.

A row trains once: what is checked of it hangs on one `Run`, whose stages are made
when a test first asks for them.
"""

import functools
import types

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
    step,
)

BEGIN, STEPS, TARGET, TOTAL = 1, 8, 10, 12


HALFWAY = 5


# Families that are trained with AdamW and whose every stage is run; of the others only
# what a family can change, with SGD, on torch: compiling them is most of the time.
CORE = ("llama3", "gemma2", "qwen3", "phi3")


# A family of each kind; the others are converted and compacted in `test_untrained`.
OTHERS = ("llama tied", "gemma4", "smollm3 biased", "qwen3.5", "gpt2", "falcon", "bart")


FURTHER = ("gpt neox", "t5gemma uneven", "mixtral", "gpt oss", "qwen moe")


KINDS = (*CORE, *OTHERS, *FURTHER)


SOME = {"jax": CORE[:2], "tensorflow": CORE[1:2], "torch": KINDS}


TRAINED = tuple(MODELS) if ENDURANCE else SOME[keras.backend.backend()]


class Recorder(LossRecorder):
    """Losses, scores and masks of every step; a save in the middle of pruning."""

    def __init__(self, x, folder):
        super().__init__()
        self.x, self.folder, self.scores, self.masks = x, folder, [], []

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        model = self.model  # on jax this syncs the variables
        self.scores.append([to_numpy(f.scores) for f in ki.find_ffns(model)])
        self.masks.append([to_numpy(f.mask) for f in ki.find_ffns(model)])
        if len(self.masks) == HALFWAY:
            self.halfway_logits = logits(model, self.x)
            self.halfway_hidden = logits(model.backbone, self.x)
            model.save_weights(self.folder / "halfway.weights.h5")
            model.backbone.save_to_preset(self.folder / "halfway")


class Run:
    """What becomes of one row of `MODELS`; each stage is made when asked for."""

    def __init__(self, name, folder):
        self.name, self.row, self.folder = name, MODELS[name], folder
        self.optimizer = adamw if name in CORE else sgd
        self.stock = tiny_lm(name)
        # KerasHub's Llama forgets one of its arguments (`tie_word_embeddings`).
        self.config = {**self.stock.backbone.get_config(), **self.row.arguments}
        self.x, self.y = batch(self.stock, np.random.default_rng(0), SIZE)
        self.data = batch(self.stock, np.random.default_rng(1), TOTAL * SIZE)
        self.width = {k: TARGET * n for k, n in self.row.widths.items()}

    @functools.cached_property
    def converted(self):
        """(outputs before, outputs after), eager and by `predict`; the model."""
        model = tiny_lm(self.name)
        pairs = [(logits(model, self.x), model.predict(self.x, verbose=0))]
        assert ki.make_prunable(model) is model
        pairs += [(logits(model, self.x), model.predict(self.x, verbose=0))]
        return list(zip(*pairs, strict=True)), model

    @functools.cached_property
    def masked(self):
        """The model after training with compact="off", and what was recorded."""
        _, model = self.converted
        record = Recorder(self.x, self.folder)
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
        compiled(model, self.optimizer()).fit(
            *self.data, callbacks=[prune, record], **FIT
        )
        record.logits = logits(model, self.x)
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
    def stripped(self):
        """The model without its pruning, and what it was just before."""
        assert self.stepped
        model = self.masked[0]
        before = types.SimpleNamespace(
            logits=logits(model, self.x),
            ours=foreign(model),
            ffns=[(f.kernels, to_numpy(f.mask)) for f in ki.find_ffns(model)],
        )
        assert ki.strip(model) is model
        return model, before

    @functools.cached_property
    def in_fit(self):
        """The model that became narrow in the middle of the same training."""
        model, record = ki.make_prunable(tiny_lm(self.name)), LossRecorder()
        compiled(model, self.optimizer())
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="end")
        model.fit(*self.data, callbacks=[prune, record], **FIT)
        return model, record


@pytest.fixture(scope="module", params=TRAINED)
def run(request, tmp_path_factory):
    keras.utils.clear_session(free_memory=False)  # names, whatever ran before
    return Run(request.param, tmp_path_factory.mktemp("run"))


def test_the_converted_model_computes_the_same_bits(run):
    pairs, model = run.converted
    for before, after in pairs:
        np.testing.assert_array_equal(before, after)
    assert np.std(pairs[0][0]) > 0.3  # something to tell apart
    ffns = ki.find_ffns(model)
    assert len(ffns) == run.row.ffns == len({ffn.name for ffn in ffns})


def test_every_ffn_is_pruned_as_its_scores_say(run):
    model, record = run.masked
    assert [f.width for f in ki.find_ffns(model)] == [TARGET] * run.row.ffns
    alive = [np.ones_like(mask) for mask in record.masks[0]]
    for t, (scores, masks) in enumerate(
        zip(record.scores, record.masks, strict=True), start=1
    ):
        for i, (score, mask) in enumerate(zip(scores, masks, strict=True)):
            full = mask.shape[-1]
            keep = reference.kept(t, full, TARGET, BEGIN, STEPS)
            importance = score.astype("float64").max(axis=0)
            # One row, or one an expert: neurons are ranked within it.
            alive[i] = np.atleast_2d(alive[i])
            rows = zip(np.atleast_2d(importance), np.atleast_2d(mask), strict=True)
            for row, (own, seen) in enumerate(rows):
                living = alive[i][row]
                best = [k for k in np.argsort(-own, kind="stable") if living[k]]
                alive[i][row] = np.isin(np.arange(full), best[:keep])
                np.testing.assert_array_equal(seen, alive[i][row])
                assert seen.sum() == keep
                # OPT's ReLU leaves some neurons without a gradient.
                assert own[best].min() > 0 or run.name == "opt"
    # Not the first ones, and not the same ones everywhere.
    rows = [tuple(row) for mask in record.masks[-1] for row in np.atleast_2d(mask)]
    assert len(set(rows)) == len(rows) >= run.row.ffns


def test_compact_keeps_the_logits(run):
    (_, received, _), (_, record) = run.narrow, run.masked
    np.testing.assert_allclose(received, record.logits, rtol=0, atol=1e-5)


def test_compact_gives_a_stock_model(run):
    narrow, _, _ = run.narrow
    assert type(narrow) is type(run.stock)
    assert type(narrow.backbone) is type(run.stock.backbone)
    assert foreign(narrow) == []
    kinds = [
        [type(layer) for layer in m._flatten_layers()] for m in (narrow, run.stock)
    ]
    assert kinds[0] == kinds[1]
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


def test_strip_leaves_the_stock_wide_model(run):
    model, before = run.stripped
    assert before.ours and not foreign(model)
    kinds = [[type(layer) for layer in m._flatten_layers()] for m in (model, run.stock)]
    assert kinds[0] == kinds[1] and ki.find_ffns(model) == []
    assert model.backbone.get_config() == run.config
    np.testing.assert_allclose(logits(model, run.x), before.logits, rtol=0, atol=1e-6)
    for (*entrances, down), mask in before.ffns:
        if mask.ndim == 2:  # each expert's in a column: tests/hub/test_mixtures.py
            continue
        for rows in (*(to_numpy(kernel).T for kernel in entrances), to_numpy(down)):
            assert np.all(rows[mask == 0] == 0) and np.all(np.any(rows[mask == 1], 1))
    if run.name in CORE:
        step(model, (run.x, run.y))
        assert np.any(logits(model, run.x) != before.logits)


@pytest.mark.parametrize("run", sorted({*CORE} & {*TRAINED}), indirect=True)
def test_the_same_tokens_are_generated(run):
    masked, narrow = run.generated
    np.testing.assert_array_equal(masked["token_ids"], narrow["token_ids"])
    assert len(np.unique(masked["token_ids"][:, 3:])) > 2
