"""The table of families: one row holds all that is known of one."""

import pytest

from keras_idea.hub.families import FAMILIES, HUB_FAMILIES


@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_names_classes_of_kerashub(name):
    keras_hub = pytest.importorskip("keras_hub")
    row = FAMILIES[name]
    assert hasattr(keras_hub.models, name)
    if row.from_nothing:
        for kind in ("CausalLM", "CausalLMPreprocessor"):
            assert hasattr(keras_hub.models, f"{row.prefix}{kind}")
        assert hasattr(keras_hub.tokenizers, f"{row.prefix}Tokenizer")


def test_a_run_can_begin_only_with_what_can_be_pruned():
    assert " ".join(HUB_FAMILIES) == "llama llama3 mistral qwen qwen3 phi3 gemma"
    assert all(row.layouts and not row.refused for row in HUB_FAMILIES.values())
    assert not any(row.layouts for row in FAMILIES.values() if row.refused)
