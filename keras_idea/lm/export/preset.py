"""Export to a KerasHub preset folder."""

import os
import pathlib
from typing import Any

import keras

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.files import weights_bytes
from keras_idea.hub.compare import (
    TEXTS,
    compare,
    first_difference,
    image_rows,
    keras_outputs,
    takes_more_than_text,
    token_rows,
)
from keras_idea.hub.families import is_backbone, is_causal, is_task
from keras_idea.hub.kept import save_preset
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.hub.tokenizers import (
    OWN_CUT,
    cuts_as_released,
    ids_of,
    restore_cut,
)
from keras_idea.lm.export.target import (
    Export,
    check_compacted,
    check_target,
    replacing_target,
)

# By the dtype that the model computes in.
_TOLERANCES = {"float32": 1e-5}
_HALF_TOLERANCE = 1e-2
_LENGTH = 48
_NO_TOKENIZER = (
    "It has no tokenizer, because the model has none. Set `lm.preprocessor` before you "
    "export it."
)
_MIXED = "Load it with `dtype={0!r}`: KerasHub 0.32 cannot read it from its presets."


def export_preset(model: keras.Model, path: str | os.PathLike) -> Export:
    """Saves a narrow model as a preset that stock KerasHub loads.

    The preset is loaded back before it is kept: its class, outputs and tokenizer must
    match the model's. Files of the Hugging Face checkpoint that the model was made of
    lie in `huggingface/` in it, for a later export.

    Args:
        model: keras.Model. A stock KerasHub task or backbone, as from `compact` or
            `load_run`.
        path: str or path. The folder. It must not exist yet.

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path exists, or the model cannot be exported.
        ExportFailed: If the preset does not match the model. Nothing of it is left.

    Example:
    >>> print(export_preset(ki.compact(lm), "narrow"))
    narrow: a KerasHub preset, Llama3CausalLM; loaded back: ... tokens equal.
    """
    check_target(path)
    if not (is_task(model) or is_backbone(model)):
        raise ExportRefused(
            f"KerasHub's models can be exported. Received: {type(model).__name__} "
            f"'{model.name}'. Use a KerasHub model, such as `hub = \"llama3\"` in a run."
        )
    check_compacted(model)
    lm: Any = model
    backbone = lm.backbone if is_task(lm) else lm
    patch_get_config(backbone)
    size = weights_bytes(model.count_params(), len(model.variables))
    with replacing_target(path, size) as temporary:
        save_preset(lm, temporary)
        _check_stock(temporary)
        loaded = _load(temporary, lm, backbone.dtype_policy)
        tolerance = _TOLERANCES.get(model.compute_dtype, _HALF_TOLERANCE)
        rows = [_row(backbone)]
        match = compare(
            keras_outputs(lm), keras_outputs(loaded), rows, tolerance, is_causal(lm)
        )
        notes = _check_tokenizer(lm, loaded, temporary)
    policy = backbone.dtype_policy.name
    notes += (_MIXED.format(policy),) if policy.startswith("mixed") else ()
    return Export(path, f"a KerasHub preset, {type(model).__name__}", match, notes)


def _row(backbone: Any) -> Any:
    """An input of a backbone of text or of images."""
    embedding = getattr(backbone, "token_embedding", None)
    if embedding is None:
        return image_rows(backbone.image_shape)
    reason = takes_more_than_text(backbone)
    if reason:
        raise ExportRefused(f"Only models of text or of images are exported. {reason}")
    length = min(_LENGTH, getattr(backbone, "max_sequence_length", None) or _LENGTH)
    return token_rows(embedding.input_dim, length)


def _check_tokenizer(lm: Any, loaded: Any, path: pathlib.Path) -> tuple[str, ...]:
    """Compares the tokenizer of a preset; what to know of it, as a tuple of notes."""
    tokenizer = getattr(getattr(lm, "preprocessor", None), "tokenizer", None)
    if tokenizer is None:
        images = getattr(lm, "input", None)
        return () if isinstance(images, keras.KerasTensor) else (_NO_TOKENIZER,)
    read = loaded.preprocessor.tokenizer
    restore_cut(read, path)
    difference = first_difference(
        lambda text: ids_of(read, text), lambda text: ids_of(tokenizer, text), TEXTS
    )
    if difference:
        raise ExportFailed(f"The preset's tokenizer is another one: {difference}.")
    return (OWN_CUT,) if cuts_as_released(tokenizer) else ()


def _load(path: pathlib.Path, lm: Any, dtype: keras.DTypePolicy) -> keras.Model:
    try:
        # Not `CausalLM.from_preset`, which may pick the assistant class for a Gemma 4.
        options = {} if (path / "tokenizer.json").is_file() else {"preprocessor": None}
        options = options if is_task(lm) else {}
        return type(lm).from_preset(str(path), dtype=dtype, **options)
    except Exception as error:
        raise ExportFailed(f"KerasHub cannot load its preset back: {error}") from error


def _check_stock(path: pathlib.Path) -> None:
    """A preset must load where this package is not installed."""
    for file in sorted(path.glob("*.json")):
        if "keras_idea" in file.read_text(encoding="utf-8"):
            raise ExportFailed(f"{file.name} of the preset refers to keras_idea.")
