"""GGUF files: as a Hugging Face folder in float32, and how they cut text into words."""

import atexit
import functools
import json
import os
import pathlib
import shutil
import tempfile
from collections import Counter
from typing import Any, NamedTuple

from keras_idea._validation import require, require_installed
from keras_idea.errors import LoadRefused
from keras_idea.hub.folder import quiet

_BEGINS = b"GGUF"
_SPACE = "▁"
#: Of all ways to cut text, the only one that cuts nothing but numbers: KerasHub 0.32
#: merges bytes across words.
UNCUT = "superbpe"


class Dequantized(NamedTuple):
    """A folder of transformers' that was made of a GGUF file."""

    folder: pathlib.Path  # it is removed when the process ends
    types: str  # of the file's numbers, the commonest first


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
    packages = ["transformers", "torch", "accelerate", "gguf"]
    require_installed(packages, "A GGUF file", "export,torch,gguf")
    import transformers

    folder = pathlib.Path(tempfile.mkdtemp(prefix="keras_idea_gguf_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    auto: Any = transformers.AutoModelForCausalLM
    try:
        reader = require("gguf", "A GGUF file", "gguf").GGUFReader(file)
        types = Counter({t.tensor_type.name: 0 for t in reader.tensors})
        for tensor in reader.tensors:
            types[tensor.tensor_type.name] += int(tensor.n_elements)
        with quiet():
            model = auto.from_pretrained(
                file.parent, gguf_file=file.name, dtype="float32"
            )
            # Its numbers are float32 now.
            model.hf_quantizer, model.is_quantized = None, False
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(folder)
            _tokenizer(file, reader).save_pretrained(folder)
    except LoadRefused:
        raise
    except Exception as error:  # a damaged file, or one of an unknown architecture
        raise LoadRefused(
            f"transformers cannot read the GGUF file {str(file)!r}: "
            f"{' '.join(str(error).split())} Get it again, or give another checkpoint."
        ) from error
    shares = [(name, n / types.total()) for name, n in types.most_common()]
    shown = (f"{name} ({share:.0%})" for name, share in shares if share > 0.005)
    return Dequantized(folder, ", ".join(shown))


def _tokenizer(file: pathlib.Path, reader: Any) -> Any:
    """A tokenizer of transformers that encodes as the GGUF file says.

    Raises:
        LoadRefused: if it cuts text in a way that is not known.
    """
    import transformers
    from tokenizers import decoders, normalizers
    from transformers.integrations.gguf import gguf_tokenizer_mapping as theirs

    read: Any = transformers.AutoTokenizer
    read = read.from_pretrained(file.parent, gguf_file=file.name)
    backend, said = read.backend_tokenizer, {}
    for key in ("model", "pre", "add_space_prefix"):
        field = reader.fields.get(f"tokenizer.ggml.{key}")
        said[key] = None if field is None else field.contents()
    if said["model"] == "gpt2":
        known = next((cut for names, cut in _cuts() if said["pre"] in names), None)
        if known is not None:
            backend.pre_tokenizer = known
        elif said["pre"] not in theirs.GGUF_PRE_TOKENIZER_SPLITS:
            raise LoadRefused(
                "It is not known how this GGUF file's tokenizer cuts text into words. "
                f"Received: tokenizer.ggml.pre={said['pre']!r}. Give the Hugging Face "
                "folder that the file was made of."
            )
    if said["model"] == "llama" and said["add_space_prefix"] is False:
        backend.normalizer = normalizers.Replace(" ", _SPACE)
        backend.pre_tokenizer = None
        back: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback()]
        backend.decoder = decoders.Sequence([*back, decoders.Fuse()])
    # Of a class that takes its file as it is, which GPT2Tokenizer does not.
    plain = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **read.special_tokens_map
    )
    plain.chat_template = getattr(read, "chat_template", None)
    return plain


def llama_cpp_name(backend: Any) -> str | None:
    """llama.cpp's name of how a `tokenizers.Tokenizer` cuts text; None: it has none."""
    cut = _spec(backend.pre_tokenizer)
    return next((names[0] for names, made in _cuts() if _spec(made) == cut), None)


def _cuts() -> list[tuple[tuple[str, ...], Any]]:
    """llama.cpp's names of ways to cut, first the one that we write; and each way."""
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as pre

    llama3 = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )

    def split(*patterns: str) -> Any:
        parts: list[Any] = [pre.Split(Regex(cut), "isolated") for cut in patterns]
        return pre.Sequence([*parts, pre.ByteLevel(False, use_regex=False)])

    words = pre.ByteLevel(add_prefix_space=False)
    digits = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
    return [
        (("gpt-2", "phi-2", "mpt", "olmo", "jais"), words),
        (digits, pre.Sequence([pre.Digits(True), words])),
        (("llama-bpe",), split(llama3)),
        (("qwen2",), split(llama3.replace(r"\p{N}{1,3}", r"\p{N}"))),
        # Numbers by groups of three, from the right; nothing else.
        ((UNCUT,), split(r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    ]


def _spec(cut: Any) -> Any:
    """What a pre-tokenizer does, as JSON without what changes no id."""
    import tokenizers

    bare = tokenizers.Tokenizer(tokenizers.models.BPE())
    if cut is not None:
        bare.pre_tokenizer = cut

    def plain(spec: Any) -> Any:
        if isinstance(spec, list):
            return [plain(part) for part in spec]
        if not isinstance(spec, dict):
            return spec
        return {k: plain(v) for k, v in spec.items() if k != "trim_offsets"}

    return plain(json.loads(bare.to_str())["pre_tokenizer"])
