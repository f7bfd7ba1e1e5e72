"""The models of a run of KerasHub's: stock ones, of the sizes asked for."""

import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.data import Tokens
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.hub_models import hub_models
from keras_idea.models import generate

TINY = """
model_dim = 16
num_layers = 1
num_heads = 2
num_key_value_heads = 1
hidden_dim = 12
target_dim = 4
sequence_length = 8
"""
TEXT = np.frombuffer(b"the quick brown fox jumps over the lazy dog. " * 20, "uint8")


def models_of(model_table):
    def text(vocabulary):
        if callable(vocabulary):
            vocabulary = vocabulary("a fox")
        return Tokens(TEXT, TEXT[:200], vocabulary, "a fox")

    return hub_models(parse_config(f"[model]\n{model_table}"), text)


def logits(model, ids):
    outputs = model(token_inputs(model, ids), training=False)
    return keras.ops.convert_to_numpy(outputs)


@pytest.mark.parametrize("family", HUB_FAMILIES)
def test_every_family(family):
    import keras_hub

    models = models_of(f"hub = {family!r}{TINY}")
    assert (models.at_start, models.at_end) == (Sizes(12), Sizes(4))
    wide, narrow = models.wide(), models.plain(Sizes(4))
    assert [ffn.hidden_dim for ffn in ki.find_ffns(wide)] == [12]
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [4]
    assert narrow.preprocessor is None
    row = HUB_FAMILIES[family]
    for model in (wide, narrow):
        assert type(model) is getattr(keras_hub.models, f"{row.prefix}CausalLM")
    assert wide.backbone.intermediate_dim == 12 * row.ffns.per_neuron
    assert narrow.backbone.intermediate_dim == 4 * row.ffns.per_neuron
    assert narrow.backbone.vocabulary_size == row.from_nothing.smallest_vocabulary
    # Its own tokenizer, and the start token where it has one.
    np.testing.assert_array_equal(models.vocabulary.token_bytes[models.corpus.train], 1)
    start = "<|endoftext|>" if family.startswith("qwen") else None
    assert (models.corpus.start_id is None) == (start is not None)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A preset with weights of its own, and its logits on a few tokens."""
    path = tmp_path_factory.mktemp("presets") / "tiny"
    models = models_of(f"hub = 'llama3'{TINY}")
    wide = models.plain(Sizes(12))
    rng = np.random.default_rng(0)
    for variable in wide.trainable_variables:
        variable.assign(0.3 * rng.normal(size=variable.shape))
    models.save(wide, path)
    return path, logits(wide, np.arange(97, 105)[None])


def test_a_preset_is_begun_with(preset):
    path, expected = preset
    models = models_of(f"preset = {str(path)!r}\ntarget_dim = 0.5\nsequence_length = 8")
    assert (models.at_start, models.at_end) == (Sizes(12), Sizes(6))
    for _ in range(2):  # each time with the preset's weights
        wide = models.wide()
        assert [ffn.hidden_dim for ffn in ki.find_ffns(wide)] == [12]
        received = logits(wide, np.arange(97, 105)[None])
        np.testing.assert_allclose(received, expected, atol=1e-5)
    # To compare with: the same shapes, weights of their own.
    plain = models.plain(Sizes(12))
    assert plain.count_params() - models.plain(Sizes(6)).count_params() == 3 * 16 * 6
    assert np.abs(logits(plain, np.arange(97, 105)[None]) - expected).max() > 0.1
    assert models.vocabulary.decode(models.vocabulary.encode("a fox")) == "a fox"


def test_generate_takes_ids(preset):
    import keras_hub

    path, expected = preset
    stock = keras_hub.models.CausalLM.from_preset(str(path))
    with pytest.raises(ValueError, match="has a preprocessor, .*preprocessor = None"):
        generate(stock, [97, 98, 99], 4)
    stock = models_of(f"preset = {str(path)!r}\ntarget_dim = 4").wide()
    # In a longer window, the rest of which is padding.
    ids = generate(stock, np.arange(97, 105), 1, temperature=0, window=12)
    assert ids.tolist() == [*range(97, 105), expected[0, -1].argmax()]


class TestRefused:
    def test_without_keras_hub(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "keras_hub", None)
        for table in (f"hub = 'llama3'{TINY}", "preset = 'mine'"):
            with pytest.raises(ConfigError, match="pip install .*delete the line"):
                models_of(table)

    def test_no_such_preset(self, tmp_path):
        path = tmp_path / "nowhere"
        with pytest.raises(ConfigError, match="`model.preset` gives no model to prune"):
            models_of(f"preset = {str(path)!r}")

    def test_nothing_to_prune(self, preset):
        path, _ = preset
        with pytest.raises(ConfigError, match="below hidden_dim=12 of the preset"):
            models_of(f"preset = {str(path)!r}\ntarget_dim = 12")
