"""Presets of pruned models: what stock KerasHub makes of them where we are not."""

import dataclasses
import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from tests import ENDURANCE
from tests.support.hub_models import tiny_lm

TEXT = (
    "the quick brown fox\njumps over the lazy dog\nand again, the fox\n"
    "while five boxing wizards\nwatch how vexed daft zebras\njump and quack\n"
) * 2
PROMPT, GENERATED = "the fox", 16
NARROW = 10


@dataclasses.dataclass(frozen=True)
class Row:
    """A family and its tokenizer."""

    prefix: str
    tokenizer: str
    arguments: dict = dataclasses.field(default_factory=dict)


FAMILIES = {
    "llama3": Row("Llama3", "bpe"),
    # KerasHub's config forgets that it is tied.
    "llama3 tied": Row("Llama3", "bpe", arguments={"tie_word_embeddings": True}),
    "mistral": Row("Mistral", "sentencepiece"),
    "qwen3": Row("Qwen3", "bpe"),
    "gemma": Row("Gemma", "sentencepiece"),
    "phi3": Row("Phi3", "sentencepiece"),
}
# All in `make endurance`; the suite has one of whose tie KerasHub forgets.
NAMES = tuple(FAMILIES) if ENDURANCE else ("llama3 tied",)
# One for all, so that jax compiles the same operations once.
VOCABULARY = 320
# Nothing of ours can be imported in this process.
STRANGER = """
import json, sys
sys.modules["keras_idea"] = None
import keras, keras_hub, numpy as np
presets, prompt, length = json.loads(sys.argv[1])
for folder in presets:
    lm = keras_hub.models.CausalLM.from_preset(folder)
    ids = np.load(folder + "/ids.npy")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    logits = keras.ops.convert_to_numpy(lm(inputs, training=False))
    np.save(folder + "/logits.npy", logits)
    lm.compile(sampler="greedy")
    found = {
        "class": type(lm).__name__,
        "parameters": lm.count_params(),
        "tokens": np.asarray(lm.preprocessor.tokenizer(prompt)).tolist(),
        "text": lm.generate(prompt, max_length=length, stop_token_ids=None),
    }
    print("FOUND", json.dumps(found))
"""


def trained(row, family):
    """A tiny CausalLM with a tokenizer, pruned in a short fit on text."""
    import keras_hub

    tokenizer = make_tokenizer(family, row.tokenizer, TEXT, VOCABULARY)
    assert tokenizer.vocabulary_size() == VOCABULARY
    lm = tiny_lm(family, num_layers=1, vocabulary_size=VOCABULARY, **row.arguments)
    preprocessor = getattr(keras_hub.models, f"{row.prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=16)
    lm.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=None,
    )
    # Masked to the end: narrowing in the fit would compile it once more.
    prune = ki.IdeaPruneCallback(NARROW, begin_step=1, prune_steps=2, compact="off")
    lines = TEXT.splitlines()
    lm.fit(lines, batch_size=4, shuffle=False, verbose=0, callbacks=[prune])
    return lm


def logits(lm, ids):
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    return keras.ops.convert_to_numpy(lm(inputs, training=False))


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """Family to what we know of its preset and what a stranger found in it."""
    root, known = tmp_path_factory.mktemp("presets"), {}
    for name in NAMES:
        lm = trained(FAMILIES[name], name.split()[0])
        narrow = ki.compact(lm)
        folder = root / name.replace(" ", "-")
        narrow.save_to_preset(str(folder))
        tokenizer = narrow.preprocessor.tokenizer
        ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 12))
        np.save(folder / "ids.npy", ids.astype("int32"))
        narrow.compile(sampler="greedy")
        known[name] = {
            "folder": folder,
            "pruned": logits(lm, ids.astype("int32")),
            "class": type(lm).__name__,
            "parameters": narrow.count_params(),
            "tokens": np.asarray(tokenizer(PROMPT)).tolist(),
            "text": narrow.generate(PROMPT, max_length=GENERATED, stop_token_ids=None),
        }
    folders = [str(row["folder"]) for row in known.values()]
    arguments = json.dumps([folders, PROMPT, GENERATED])
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    lines = [x for x in result.stdout.splitlines() if x.startswith("FOUND ")]
    found = [json.loads(line.removeprefix("FOUND ")) for line in lines]
    return {name: (known[name], f) for name, f in zip(known, found, strict=True)}


@pytest.mark.parametrize("name", NAMES)
class TestPreset:
    def test_loads_without_us_as_the_same_class(self, presets, name):
        known, found = presets[name]
        assert found["class"] == known["class"]
        assert found["parameters"] == known["parameters"]

    def test_is_narrow(self, presets, name):
        config = json.loads((presets[name][0]["folder"] / "config.json").read_text())
        per_neuron = 2 if name == "gemma" else 1
        assert config["config"]["intermediate_dim"] == NARROW * per_neuron

    def test_computes_what_the_pruned_model_computes(self, presets, name):
        known, _ = presets[name]
        found = np.load(known["folder"] / "logits.npy")
        np.testing.assert_allclose(found, known["pruned"], rtol=0, atol=1e-5)

    def test_reads_and_writes_the_same_text(self, presets, name):
        known, found = presets[name]
        assert found["tokens"] == known["tokens"]
        assert found["text"] == known["text"]
        assert found["text"].startswith(PROMPT) and len(found["text"]) > len(PROMPT)
