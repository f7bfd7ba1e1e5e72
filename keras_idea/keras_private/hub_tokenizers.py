"""What KerasHub's tokenizers keep inside, and what their converters read (0.32)."""

import inspect
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


def _loader(preset: str, config: Mapping[str, Any]) -> Any:
    from keras_hub.src.utils.transformers.preset_loader import TransformersPresetLoader

    return TransformersPresetLoader(preset, config)


def keys_read(config: Mapping[str, Any]) -> set[str]:
    """The keys of a Hugging Face config that KerasHub's converter reads.

    Raises:
        ValueError: by KerasHub, if it has no converter of this `model_type`.
    """
    noted = _Read(config)
    convert = _loader("", config).converter.convert_backbone_config
    if len(inspect.signature(convert).parameters) == 1:
        convert(noted)
    return noted.read


def converted_as(
    cls: type, folder: str, config: Mapping[str, Any], **arguments: Any
) -> Any:
    """A backbone of a Hugging Face folder, by KerasHub's converter, of another class.

    `arguments` are its `load_weights` and arguments of the backbone.
    """
    return _loader(folder, config).load_backbone(cls, **arguments)
