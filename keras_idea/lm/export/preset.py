"""Export to a KerasHub preset folder."""

import os
import pathlib
import shutil
import warnings
from typing import Any

import keras

from keras_idea.errors import ExportFailed
from keras_idea.files import weights_bytes
from keras_idea.hub.hf.tokenizer import OWN_CUT, cuts_as_released, restore_cut
from keras_idea.lm.export.compare import compare, first_difference, model_subject
from keras_idea.lm.export.stock import stock
from keras_idea.lm.export.target import (
    Export,
    ExportKind,
    check_target,
    replacing_target,
)
from keras_idea.validation import check_choice

PRESET = ExportKind(
    "a KerasHub preset",
    names=(
        "config.json",
        "metadata.json",
        "task.json",
        "preprocessor.json",
        "tokenizer.json",
        "model*.weights.h5",
        "model.weights.json",
        "task.weights.h5",
        "assets",
        "README.md",
    ),
    marks=("config.json", "metadata.json"),
)
# By the dtype that the model computes in.
_TOLERANCES = {"float32": 1e-5}
_HALF_TOLERANCE = 1e-2


#: Ways to quantize a preset; KerasHub 0.32 computes int4 otherwise once it is loaded.
QUANTIZED = ("int8",)


def export_preset(
    model: keras.Model,
    path: str | os.PathLike,
    overwrite: bool = False,
    quantize: str | None = None,
) -> Export:
    """Saves a narrow model as a preset that stock KerasHub loads.

    The preset is loaded back before it is kept: its class, logits, greedy tokens and
    tokenizer must match the model's.

    Args:
        model: keras.Model. A stock KerasHub `CausalLM`, as from `compact` or
            `load_run`; or this package's compacted decoder: it becomes a Llama3 (a
            Mistral if heads were pruned).
        path: str or path. The folder.
        overwrite: bool. Whether to replace an earlier preset. Defaults to False.
        quantize: str or None. "int8" stores matrices and embeddings in 8 bits, by
            Keras's own `quantize`; the rest is float32. The model itself keeps its
            weights. Defaults to None.

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path is taken, or the model cannot be exported.
        ExportFailed: If the preset does not match the model. Nothing of it is left.

    Example:
    >>> print(export_preset(ki.compact(lm), "narrow"))
    narrow: a KerasHub preset, Llama3CausalLM; loaded back: ... tokens equal.
    """
    check_choice("quantize", quantize, (None, *QUANTIZED))
    check_target(path, PRESET, overwrite)
    source = stock(model)
    subject, saved = source.subject, source.lm
    dtype: keras.DTypePolicy | None = _policy(saved)
    logits: tuple[str, ...] = ()
    size = weights_bytes(source.lm.count_params(), len(source.lm.variables))
    with replacing_target(path, size) as temporary:
        source.lm.save_to_preset(str(temporary))
        if quantize is not None:
            saved, dtype = _quantized(temporary, source.lm, quantize), None
            subject = model_subject(saved)
            logits = (f"Its logits are those of {quantize}, not the model's.",)
        notes = (*source.notes, *_precision(saved), *logits)
        _check_stock(temporary)
        loaded = _load(temporary, source.lm, dtype)
        tolerance = _TOLERANCES.get(saved.compute_dtype, _HALF_TOLERANCE)
        match = compare(
            subject,
            model_subject(loaded),
            source.vocabulary_size,
            tolerance,
            source.probe_length,
        )
        if source.tokenizer is not None:
            notes += _check_tokenizer(source.tokenizer, loaded, temporary)
    what = f"a KerasHub preset, {source.name}"
    return Export(path, what, match, notes)


def _check_tokenizer(
    tokenizer: keras.layers.Layer, loaded: Any, path: pathlib.Path
) -> tuple[str, ...]:
    """Compares the tokenizer of a preset; what to know of it, as a tuple of notes."""
    read = loaded.preprocessor.tokenizer
    own_cut = cuts_as_released(tokenizer)
    notes = (OWN_CUT,) if own_cut and first_difference(tokenizer, read) else ()
    restore_cut(read, path)
    other = first_difference(tokenizer, read)
    if other:
        raise ExportFailed(f"The preset's tokenizer is another one: {other}")
    return notes


def _quantized(path: pathlib.Path, lm: keras.Model, quantize: str) -> keras.Model:
    """Replaces a preset by its quantized model, which is returned."""
    # In float32: KerasHub 0.32 does not read all the dtypes of others back.
    quantized: Any = _load(path, lm, "float32")
    # Not the task: `quantize` of Keras 3.15 stops at its tokenizer.
    with warnings.catch_warnings(action="ignore"):  # of layers without a matrix
        quantized.backbone.quantize(quantize)
    shutil.rmtree(path)  # shards of the larger weights would stay beside the others
    quantized.save_to_preset(str(path))
    return quantized


def _policy(lm: Any) -> keras.DTypePolicy:
    return lm.backbone.dtype_policy


def _precision(lm: keras.Model) -> tuple[str, ...]:
    """What must be known of a preset of mixed precision, as a tuple of notes."""
    policy = _policy(lm).name
    if not policy.startswith("mixed"):
        return ()
    return (
        f"KerasHub 0.32 cannot read the dtype {policy!r} of its own presets: load it "
        f"by `from_preset(..., dtype={policy!r})`, or any other dtype.",
    )


def _load(
    path: pathlib.Path, lm: Any, dtype: str | keras.DTypePolicy | None
) -> keras.Model:
    """A preset as KerasHub loads it; a quantized one names its own dtypes: None."""
    try:
        # Not `CausalLM.from_preset`, which may pick the assistant class for a Gemma 4.
        return type(lm).from_preset(str(path), dtype=dtype)
    except Exception as error:
        raise ExportFailed(f"KerasHub cannot load its preset back: {error}") from error


def _check_stock(path: pathlib.Path) -> None:
    """A preset must load where this package is not installed."""
    for file in sorted(path.glob("*.json")):
        if "keras_idea" in file.read_text(encoding="utf-8"):
            raise ExportFailed(f"{file.name} of the preset refers to keras_idea.")
