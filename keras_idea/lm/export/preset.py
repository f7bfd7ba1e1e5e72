"""Export to a KerasHub preset folder."""

import os
import pathlib
import shutil
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_idea.elastic.widths import all_neurons_at, check_widths
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.files import weights_bytes
from keras_idea.finding.find import find_ffns
from keras_idea.hub.hf.tokenizer import OWN_CUT, cuts_as_released, restore_cut
from keras_idea.hub.widths import RECORD, at_width, write_widths
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
        RECORD,
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
    widths: Mapping[str, int | float] | None = None,
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
        widths: dict or None. Names of narrower widths that the model was trained at,
            with the neurons of each FFN or the share of them, as `ElasticCallback` had
            them: `hub.load(path, width="small")` slices them out. It works for FFNs of
            one width. Defaults to None: the preset holds one width.

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path is taken, or the model cannot be exported, or
            `widths` cannot be recorded.
        ExportFailed: If the preset does not match the model. Nothing of it is left.

    Example:
    >>> print(export_preset(ki.compact(lm), "narrow"))
    narrow: a KerasHub preset, Llama3CausalLM; loaded back: ... tokens equal.
    """
    check_choice("quantize", quantize, (None, *QUANTIZED))
    check_target(path, PRESET, overwrite)
    record = None if widths is None else _record_of(model, widths, quantize)
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
        if record is not None:
            write_widths(temporary, record)
            for name in record:
                at_width(loaded, temporary, name)
            notes += (f"It holds the widths {', '.join(record)}.",)
    what = f"a KerasHub preset, {source.name}"
    return Export(path, what, match, notes)


def _record_of(
    model: keras.Model, widths: Mapping[str, int | float], quantize: str | None
) -> dict[str, int]:
    """Name -> neurons of each FFN, "full" first."""
    if quantize is not None:
        raise ExportRefused(
            "A quantized preset holds one width: its kernels have scales of their own. "
            f"Received: quantize={quantize!r}, with widths. Export one of the widths, "
            "or leave `quantize` out."
        )
    ffns = find_ffns(model)
    counts = all_neurons_at(check_widths(widths), ffns)
    uneven = next((name for name, each in counts.items() if len(set(each)) != 1), None)
    if uneven is not None:
        raise ExportRefused(
            f"`widths` must be one number for all FFNs. Received: '{uneven}' is "
            f"{counts[uneven]}. Export a preset of each width: "
            "`keras_idea.sliced(model, width)`."
        )
    return {name: each[0] for name, each in counts.items()}


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
