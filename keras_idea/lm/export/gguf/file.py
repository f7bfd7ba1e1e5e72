"""Export to a GGUF file, which llama.cpp and what is built on it serve."""

import os
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ExportRefused
from keras_idea.lm.export.gguf.check import check_file
from keras_idea.lm.export.gguf.families import family_of
from keras_idea.lm.export.gguf.keys import (
    Value,
    common_keys,
    context_of,
    position_factors,
)
from keras_idea.lm.export.gguf.layouts import tensors
from keras_idea.lm.export.gguf.tokenizer import (
    TokenTable,
    vocabulary_of,
    vocabulary_of_bytes,
)
from keras_idea.lm.export.gguf.types import DTYPES, Written, written
from keras_idea.lm.export.stock import stock
from keras_idea.lm.export.target import (
    Export,
    ExportKind,
    check_target,
    replacing_target,
)
from keras_idea.validation import check_choice, check_int, require

GGUF = ExportKind("a GGUF file", suffix=".gguf")
_FALLBACK = (
    "{count} of {all} matrices are float16, because their rows are no multiple of 32 "
    "long, as blocks are: {names}. llama.cpp's own quantizer does the same; "
    "widths that are such a multiple (`round_to = 32`) avoid it."
)


def export_gguf(
    model: keras.Model,
    path: str | os.PathLike,
    dtype: str = "float32",
    overwrite: bool = False,
    length: int | None = None,
) -> Export:
    """Saves a narrow model as a GGUF file, which llama.cpp loads.

    The file is read back before it is kept: tensors and tokens must equal what was
    written. If the package `llama_cpp` is installed, llama.cpp runs the file: logits,
    greedy tokens and token ids must match the model's (of a mixture of experts below
    float32, a tenth of the logits).

    Args:
        model: keras.Model. A stock KerasHub `CausalLM`, as from `compact` or
            `load_run`; or this package's compacted decoder, which becomes a Llama (a
            Mistral if heads were pruned).
        path: str or path. The file. Its name ends in ".gguf".
        dtype: str. The type of the matrices: "float32", "float16", or "q8_0", "q5_0",
            "q4_0" (8, 5 or 4 bits, and a scale per 32 values). In the last three,
            matrices whose rows are not a multiple of 32 are float16. In the last two,
            the table of tokens and the last matrix are q8_0. Vectors are always
            float32. Defaults to "float32".
        overwrite: bool. Whether to replace an existing file. Defaults to False.
        length: int or None. Tokens of context for a server, at most what the model's
            positions, or a sliding window that llama.cpp lacks, allow. Defaults to
            None: that limit; without positions the preprocessor's length, or 1024.

    Returns:
        `Export`.

    Raises:
        ValueError: If `dtype` is not allowed or `length` is below 1.
        ExportRefused: If the path is taken, the package `gguf` is missing, the model is
            still prunable or takes more than text, or llama.cpp would compute something
            else; says why.
        ExportFailed: If the file does not match the model. Nothing of it is left.

    Example:
    >>> print(export_gguf(ki.compact(lm), "narrow.gguf", "float16"))
    narrow.gguf: a GGUF file of Llama3CausalLM for llama.cpp's 'llama', float16; ...
    """
    check_choice("dtype", dtype, tuple(DTYPES))
    check_target(path, GGUF, overwrite)
    if length is not None:
        check_int("length", length, minimum=1)
    gguf = require("gguf", "The export to GGUF", "gguf", ExportRefused)
    source = stock(model, in_float32=True)
    backbone = source.lm.backbone
    family = family_of(backbone)
    if source.of_bytes:
        vocabulary = vocabulary_of_bytes(source.vocabulary_size)
    else:
        vocabulary = vocabulary_of(source.lm.preprocessor, source.vocabulary_size)
    context = context_of(source.lm, family.arch, family.window, length)
    keys = common_keys(backbone, context.length) | family.keys(backbone)
    factors = position_factors(backbone)
    found = tensors(backbone, family.ends, family.block, family.follows)
    parts = [written(t, dtype) for t in [*found, *factors]]
    with replacing_target(path) as temporary:
        writer = gguf.GGUFWriter(temporary, family.arch)
        try:
            _describe(writer, gguf, f"{family.arch}.", keys, dtype)
            _add_vocabulary(writer, vocabulary)
            _write_tensors(writer, gguf, parts)
        finally:
            writer.close()
        match, notes = check_file(
            source, temporary, parts, vocabulary, dtype, context.length
        )
    name = type(source.lm).__name__
    name += "" if vocabulary.tokens else " without a tokenizer"
    what = f"a GGUF file of {name} for llama.cpp's {family.arch!r}, {dtype}"
    all_notes = (*vocabulary.notes, str(context), *_fallback(parts, dtype), *notes)
    return Export(path, what, match, all_notes)


def _describe(
    writer: Any, gguf: Any, prefix: str, keys: dict[str, Value], dtype: str
) -> None:
    """Everything that is said of the model, but its tokenizer."""
    _add(writer, "general.", {"type": "model", "file_type": DTYPES[dtype][1]})
    _add(writer, prefix, keys)
    if dtype.startswith("q"):
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_vocabulary(writer: Any, vocabulary: TokenTable) -> None:
    settings = {"model": vocabulary.model, **vocabulary.settings}
    _add(writer, "tokenizer.ggml.", settings)
    if not vocabulary.tokens:
        return
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.scores is not None:
        writer.add_token_scores(vocabulary.scores)
    if vocabulary.merges is not None:
        writer.add_token_merges(vocabulary.merges)


def _add(writer: Any, prefix: str, keys: dict[str, Value]) -> None:
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in keys.items():
        add[type(value)](prefix + key, value)


def _write_tensors(writer: Any, gguf: Any, parts: list[Written]) -> None:
    """Writes the file, one tensor after the other: no two are in memory at once."""
    for part in parts:
        kind = gguf.GGMLQuantizationType[part.type]
        shape = part.tensor.shape
        writer.add_tensor_info(
            part.tensor.name, shape, np.dtype("float32"), part.nbytes, raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for part in parts:
        writer.write_tensor_data(part.values())


def _fallback(parts: list[Written], dtype: str) -> tuple[str, ...]:
    """What the user should know of the types, as a tuple of notes."""
    matrices = [part for part in parts if len(part.tensor.shape) > 1]
    halves = [part.tensor.name for part in matrices if part.type == "F16"]
    if not dtype.startswith("q") or not halves:
        return ()
    some = ", ".join(halves[:3]) + (", ..." if len(halves) > 3 else "")
    return (_FALLBACK.format(count=len(halves), all=len(matrices), names=some),)
