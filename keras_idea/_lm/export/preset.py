"""Export to a KerasHub preset folder."""

import os
import pathlib
from typing import Any

import keras

from keras_idea._files import replacing, reserve
from keras_idea._lm.export.target import (
    NO_TOKENIZER,
    Export,
    check_compacted,
    check_target,
)
from keras_idea.errors import ExportFailed
from keras_idea.hub.compare import (
    TEXTS,
    compare,
    expected_of,
    first_difference,
    image_rows,
    keras_outputs,
    token_rows,
)
from keras_idea.hub.families import is_backbone, is_causal, is_task
from keras_idea.hub.kept import save_preset
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.hub.tokenizers import OWN_CUT, cuts_as_released, ids_of, restore_cut

# By the dtype that the model computes in.
_TOLERANCES = {"float32": 1e-5}
_HALF_TOLERANCE = 1e-2
_LENGTH = 48
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
    check_compacted(model)
    lm: Any = model
    backbone = lm.backbone if is_task(lm) else lm
    policy = backbone.dtype_policy
    patch_get_config(backbone)
    with replacing(path) as folder:
        reserve(
            folder.parent, model.variables
        )  # HDF5 ends the process if the disk is full
        save_preset(lm, folder)
        for file in sorted(folder.glob("*.json")):
            # It must load where this package is not installed.
            if "keras_idea" in file.read_text(encoding="utf-8"):
                raise ExportFailed(f"{file.name} of the preset refers to keras_idea.")
        tokenizer = getattr(getattr(lm, "preprocessor", None), "tokenizer", None)
        options = {} if tokenizer or is_backbone(lm) else {"preprocessor": None}
        try:
            # Not `CausalLM.from_preset`, which may pick Gemma 4's assistant class.
            loaded = type(lm).from_preset(str(folder), dtype=policy, **options)
        except Exception as error:
            raise ExportFailed(
                f"KerasHub cannot load its preset back: {error}"
            ) from error
        expected = expected_of(keras_outputs(lm), [_row(backbone)], is_causal(lm))
        tolerance = _TOLERANCES.get(model.compute_dtype, _HALF_TOLERANCE)
        match = compare(expected, keras_outputs(loaded), tolerance)
        notes: tuple[str, ...] = ()
        if tokenizer is not None:
            notes = _check_tokenizer(tokenizer, loaded.preprocessor.tokenizer, folder)
        elif isinstance(getattr(lm, "input", None), dict):  # it reads text
            notes = (NO_TOKENIZER,)
    if policy.name.startswith("mixed"):
        notes += (_MIXED.format(policy.name),)
    return Export(path, f"a KerasHub preset, {type(model).__name__}", match, notes)


def _row(backbone: Any) -> Any:
    """An input of a backbone of text or of images."""
    embedding = getattr(backbone, "token_embedding", None)
    if embedding is None:
        return image_rows(backbone.image_shape)
    length = min(_LENGTH, getattr(backbone, "max_sequence_length", None) or _LENGTH)
    return token_rows(embedding.input_dim, length)


def _check_tokenizer(tokenizer: Any, read: Any, path: pathlib.Path) -> tuple[str, ...]:
    """Compares the tokenizer of a preset, and returns what to know of it."""
    restore_cut(read, path)
    difference = first_difference(
        lambda text: ids_of(read, text), lambda text: ids_of(tokenizer, text), TEXTS
    )
    if difference:
        raise ExportFailed(f"The preset's tokenizer is another one: {difference}.")
    return (OWN_CUT,) if cuts_as_released(tokenizer) else ()
