"""A GGUF file as a Hugging Face folder: its numbers dequantized to float32."""

import atexit
import dataclasses
import functools
import importlib
import os
import pathlib
import shutil
import tempfile
from collections import Counter
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.files import reserve
from keras_idea.hub.cuts import pre_tokenizer
from keras_idea.hub.folder import quiet
from keras_idea.validation import require, require_installed

_BEGINS = b"GGUF"
_SPACE = "▁"


@dataclasses.dataclass(frozen=True)
class Dequantized:
    """A folder of transformers' that was made of a GGUF file.

    Attributes:
        folder: path; it is removed when the process ends.
        types: str, the types of its numbers, the commonest first.
    """

    folder: pathlib.Path
    types: str


def is_gguf(path: str | os.PathLike) -> bool:
    """Whether a file begins as GGUF files do."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:
        return False


def dequantized(path: str | os.PathLike) -> Dequantized:
    """The file as a folder; made once a process.

    Raises:
        LoadRefused: if transformers cannot read the file.
        MissingPackage: if transformers, torch, accelerate or gguf is not installed.
    """
    file = pathlib.Path(path).resolve()
    return _dequantized(file, file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _dequantized(file: pathlib.Path, changed: int) -> Dequantized:
    what = "A GGUF file"
    require_installed(["transformers"], what, "export")
    require_installed(["torch"], what, "torch")
    require_installed(["accelerate"], what, "gguf")  # transformers reads it with this
    gguf = require("gguf", what, "gguf")
    import transformers

    try:
        reader = gguf.GGUFReader(file)
        types = _types(reader)
    except Exception as error:
        raise LoadRefused(
            f"{str(file)!r} is damaged: {' '.join(str(error).split())} Get it again."
        ) from error
    folder = pathlib.Path(tempfile.mkdtemp(prefix="keras_idea_gguf_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    reserve(folder, 4 * sum(int(tensor.n_elements) for tensor in reader.tensors))
    reader_kwargs = {"gguf_file": file.name}
    auto: Any = transformers.AutoModelForCausalLM
    try:
        with quiet():
            model = auto.from_pretrained(file.parent, dtype="float32", **reader_kwargs)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                file.parent, **reader_kwargs
            )
        tokenizer = settled_tokenizer(tokenizer, reader)
    except LoadRefused:
        raise
    except Exception as error:
        raise LoadRefused(
            f"transformers cannot read the GGUF file {str(file)!r}: "
            f"{' '.join(str(error).split())} Give another checkpoint."
        ) from error
    # Its numbers are float32 now.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    with quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return Dequantized(folder, types)


def _types(reader: Any) -> str:
    """Such as "Q4_1 (85 %), Q6_K (15 %)", by numbers."""
    numbers: Counter[str] = Counter()
    for tensor in reader.tensors:
        numbers[tensor.tensor_type.name] += int(tensor.n_elements)
    total = sum(numbers.values())
    shares = [(name, count / total) for name, count in numbers.most_common()]
    return ", ".join(f"{name} ({share:.0%})" for name, share in shares if share > 0.005)


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
