"""The recipes of `docs/checkpoint.md` run as they are, and leave narrow presets."""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from tests.support import ROOT
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_lm

RECIPES = {
    "Recover without labels": 1,
    "What recovers a pruned checkpoint best?": 2,
}


def codes(question):
    """The pieces of code of a section."""
    page = (ROOT / "docs" / "checkpoint.md").read_text(encoding="utf-8")
    section = page.split(f"## {question}\n")[1].split("\n## ")[0]
    blocks = [b for b in section.split("\n\n") if b.startswith("    ")]
    return ["\n".join(line[4:] for line in b.splitlines()) for b in blocks]


@pytest.mark.parametrize(
    "question, place",
    [(q, i) for q, count in RECIPES.items() for i in range(count)],
    ids=["no labels", "few tokens", "gradual"],
)
def test_it_runs(question, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wide, model = tiny_lm("gemma2"), tiny_lm("gemma2")
    x, y = batch(wide, np.random.default_rng(0), size=64)
    found = codes(question)
    assert len(found) == RECIPES[question]
    nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    names = {"keras": keras, "ki": ki, "wide": wide, "model": model, "nats": nats}
    before = [to_numpy(v) for v in wide.variables]
    code = found[place].replace("prune_steps=250", "prune_steps=2")
    exec(code, {**names, "x": x, "y": y}, scope := {})
    small = scope.get("small", model)
    width = ki.find_ffns(wide)[0].hidden_dim
    assert all(ffn.hidden_dim < width for ffn in ki.find_ffns(small))
    for old, variable in zip(before, wide.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    if "save_to_preset" in code:
        loaded = keras_hub.models.CausalLM.from_preset("narrow", preprocessor=None)
        np.testing.assert_allclose(to_numpy(loaded(x)), to_numpy(small(x)), atol=1e-5)
