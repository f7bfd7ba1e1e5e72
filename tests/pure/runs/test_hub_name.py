"""Names of KerasHub families that a run cannot make from nothing: what is said."""

import keras_hub
import pytest

from keras_idea.errors import ConfigError
from keras_idea.hub.families import FAMILIES, PRESET_FAMILIES
from keras_idea.lm.runs.config import parse_config

REFUSED = {
    "misspelled family": ("[model]\nhub = 'lama3'", r"Did you mean 'llama3'\?$"),
    "family in capitals": ("[model]\nhub = 'LLAMA3'", r"Did you mean 'llama3'\?$"),
    "family of trained models": (
        "[model]\nhub = 'gpt2'",
        "`model.hub` cannot be 'gpt2': a run cannot make a GPT2 model from nothing. "
        "Received: model.hub='gpt2'. .*set `model.preset` to a trained model",
    ),
    "family of encoders": (
        "[model]\nhub = 'bert'",
        "cannot be 'bert': runs train causal language models without experts",
    ),
    "family that cannot be pruned": (
        "[model]\nhub = 'gemma3n'",
        "cannot be 'gemma3n': its activation sparsity takes statistics",
    ),
}


@pytest.mark.parametrize("text, match", REFUSED.values(), ids=REFUSED.keys())
def test_refused_at_once(text, match):
    with pytest.raises(ConfigError, match=match):
        parse_config(text)


def test_which_families_a_run_prunes_by_their_presets():
    """Of all whose FFNs are known, those that KerasHub has a causal model of."""
    rows = [row for row in FAMILIES.values() if row.ffns and not row.from_nothing]
    found = {
        row.prefix
        for row in rows
        if not row.ffns.experts and hasattr(keras_hub.models, f"{row.prefix}CausalLM")
    }
    assert found == set(PRESET_FAMILIES)
