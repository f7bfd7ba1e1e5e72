"""The tokenizer of a GGUF file, which transformers 5 cuts texts with otherwise.

It leaves out two settings of a file: whether a space is put before a text, and, of some
names of llama.cpp, how text is cut into words.
"""

import importlib
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.hub.cuts import pre_tokenizer

_SPACE = "▁"


def settled_tokenizer(tokenizer: Any, reader: Any) -> Any:
    """A tokenizer of transformers that encodes as the GGUF file says.

    Args:
        tokenizer: as transformers loads it from the file.
        reader: `gguf.GGUFReader` of the file.

    Raises:
        LoadRefused: if it cuts text in a way that is not known.
    """
    import transformers

    backend = tokenizer.backend_tokenizer
    kind = _field_value(reader, "model")
    if kind == "gpt2":
        _cut(backend, _field_value(reader, "pre"))
    if kind == "llama" and _field_value(reader, "add_space_prefix") is False:
        _without_prefix(backend)
    # Of a class that takes its file as it is, which GPT2Tokenizer does not.
    plain = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **tokenizer.special_tokens_map
    )
    plain.chat_template = getattr(tokenizer, "chat_template", None)
    return plain


def _field_value(reader: Any, key: str) -> Any:
    field = reader.fields.get(f"tokenizer.ggml.{key}")
    return None if field is None else field.contents()


def _cut(backend: Any, name: str | None) -> None:
    known = pre_tokenizer(name)
    if known is not None:
        backend.pre_tokenizer = known
    elif name not in _known_to_transformers():
        raise LoadRefused(
            "It is not known how this GGUF file's tokenizer cuts text into words. "
            f"Received: tokenizer.ggml.pre={name!r}. Give the Hugging Face folder that "
            "the file was made of."
        )


def _known_to_transformers() -> frozenset[str]:
    name = "transformers.integrations.gguf.gguf_tokenizer_mapping"
    try:
        module = importlib.import_module(name)
    except ImportError:  # another version
        return frozenset()
    return frozenset(getattr(module, "GGUF_PRE_TOKENIZER_SPLITS", ()))


def _without_prefix(backend: Any) -> None:
    from tokenizers import decoders, normalizers

    backend.normalizer = normalizers.Replace(" ", _SPACE)
    backend.pre_tokenizer = None
    back: list[Any] = [decoders.Replace(_SPACE, " ")]
    back += [decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence(back)
