"""What KerasHub's tokenizers keep inside, and what their converters read (0.32)."""

import importlib
from collections.abc import Mapping
from typing import Any

# Hugging Face's `model_type` -> the module that converts it, where the two differ.
_CONVERTERS = {
    "llama": "llama3",
    "qwen2": "qwen",
    "gemma2": "gemma",
    "gemma3_text": "gemma3",
    "qwen2_moe": "qwen_moe",
    "xlm-roberta": "xlm_roberta",
}


def python_tokenizer(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of a KerasHub `BytePairTokenizer`."""
    tokenizer._maybe_initialized_tokenizers()
    return tokenizer._tokenizer


def replace_python_tokenizer(tokenizer: Any, other: Any) -> None:
    """Makes a KerasHub `BytePairTokenizer` encode and decode as `other` does.

    In a `tf.data` pipeline it still encodes by its own TensorFlow code.
    """
    tokenizer._tokenizer = other


class _Read(dict):
    """A dict that notes which of its keys were asked for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def keys_read(config: Mapping[str, Any]) -> set[str]:
    """The keys of a Hugging Face config that KerasHub's converter reads."""
    kind = config["model_type"]
    name = _CONVERTERS.get(kind, kind)
    noted = _Read(config)
    try:
        module = importlib.import_module(
            f"keras_hub.src.utils.transformers.convert_{name}"
        )
        module.convert_backbone_config(noted)
    except Exception:  # a module of another name, another signature, a missing key
        pass
    return noted.read
