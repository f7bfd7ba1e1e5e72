"""What KerasHub's tokenizers keep inside, and what their converters read (0.32)."""

import types
from collections.abc import Mapping
from typing import Any


def python_tokenizer(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of a KerasHub `BytePairTokenizer`."""
    tokenizer._maybe_initialized_tokenizers()
    return tokenizer._tokenizer


def replace_python_tokenizer(tokenizer: Any, other: Any) -> None:
    """Makes a KerasHub `BytePairTokenizer` encode and decode as `other` does.

    In a `tf.data` pipeline too: there KerasHub has TensorFlow code of its own, which
    cuts as GPT-2 does, and for Mistral a call of the Python object.
    """
    from keras_hub.tokenizers import MistralTekkenTokenizer

    tokenizer._tokenizer = other
    in_graph = MistralTekkenTokenizer._tokenize_tf
    tokenizer._tokenize_tf = types.MethodType(in_graph, tokenizer)


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


def converter_of(model_type: str) -> Any:
    """KerasHub's module that converts checkpoints of a `model_type`.

    Raises:
        ValueError: by KerasHub, if it has none.
    """
    from keras_hub.src.utils.transformers.preset_loader import TransformersPresetLoader

    return TransformersPresetLoader("", {"model_type": model_type}).converter


def keys_read(config: Mapping[str, Any]) -> set[str]:
    """The keys of a Hugging Face config that KerasHub's converter reads."""
    noted = _Read(config)
    converter_of(config["model_type"]).convert_backbone_config(noted)
    return noted.read


def byte_characters() -> list[str]:
    """For each byte the printable character that stands for it in byte-level BPE.

    KerasHub's tokenizers take vocabularies in these characters, but export no function
    that tells them. Seen with KerasHub 0.32.
    """
    from keras_hub.src.tokenizers.byte_pair_tokenizer import bytes_to_unicode

    characters = dict(zip(*bytes_to_unicode(), strict=True))
    return [characters[bytes([byte])] for byte in range(256)]
