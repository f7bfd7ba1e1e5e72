"""The tables of families name classes of KerasHub, and attributes of its blocks."""

import pytest

import keras_idea as ki
from keras_idea.hub.families import HUB_FAMILIES, UNTRACED
from tests.support.hub_models import MODELS

keras_hub = pytest.importorskip("keras_hub")


@pytest.mark.parametrize("name", UNTRACED)
def test_a_row_finds_ffns_in_its_class(name):
    row = next(row for row in MODELS.values() if row.backbone == name)
    assert ki.find_ffns(getattr(keras_hub.models, name)(**row.arguments))


def test_a_run_can_begin_with_a_family():
    assert " ".join(HUB_FAMILIES) == "llama llama3 mistral qwen qwen3 phi3 gemma"
    for row in HUB_FAMILIES.values():
        for kind in ("CausalLM", "CausalLMPreprocessor"):
            assert hasattr(keras_hub.models, f"{row.prefix}{kind}")
        assert hasattr(keras_hub.tokenizers, f"{row.prefix}Tokenizer")
