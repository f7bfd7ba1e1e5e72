"""Export to a Hugging Face folder, by KerasHub's importer run backwards."""

import os
import pathlib
from typing import Any

import keras

from keras_idea._files import replacing
from keras_idea._keras.hub_importers import converter_of
from keras_idea._lm.export.target import (
    NO_TOKENIZER,
    Export,
    check_compacted,
    check_target,
)
from keras_idea._validation import check_choice, require, require_installed
from keras_idea.errors import ExportFailed, ExportRefused, KerasIdeaError
from keras_idea.hub import configs
from keras_idea.hub.compare import Match, compare, expected_of, keras_outputs
from keras_idea.hub.families import is_task
from keras_idea.hub.folder import predicts, probe_rows, task_class, their_outputs
from keras_idea.hub.importer import written_weights
from keras_idea.hub.kept import kept_of
from keras_idea.hub.rebuild import rebuild_backbone
from keras_idea.hub.tokenizers import write_own_tokenizer

#: Dtypes of a folder's weights.
DTYPES = ("float32", "bfloat16", "float16")
# Largest difference for outputs of at most 1, of weights in float32, or rounded. Of
# SmolLM2 cut by magnitude, which amplifies rounding, it is 1.1e-4; uncut, 2e-6.
_TOLERANCE, _HALF_TOLERANCE = 2e-4, 5e-2
_ROUNDED = (
    "Its weights are rounded to {dtype}, as the checkpoint's were. "
    "`dtype='float32'` keeps them exact."
)


def export_hf(
    model: keras.Model, path: str | os.PathLike, dtype: str | None = None
) -> Export:
    """Saves a narrow model as a Hugging Face folder, which transformers loads.

    Every family that KerasHub reads from Hugging Face can be written: language models,
    encoders, mixtures of experts and image models. The config is that of the
    checkpoint with the new sizes; tokenizer, chat template, generation settings and
    pooling are the checkpoint's files. transformers loads the folder back before it is
    kept, and must compute the model's outputs.

    Args:
        model: keras.Model. A stock KerasHub task or backbone, as from `compact` or
            `load_run`.
        path: str or path. The folder. It must not exist yet.
        dtype: str or None. Dtype of the weights: "float32", "bfloat16" or "float16".
            Defaults to None: that of the checkpoint that the model was made of, or
            "float32".

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path exists, transformers or torch is missing, the model
            is not compact, or KerasHub has no importer of its family.
        ExportFailed: If the folder does not match the model. Nothing of it is left.

    Example:
    >>> print(export_hf(ki.compact(lm), "narrow-hf"))
    narrow-hf: a Hugging Face folder of Llama3CausalLM, float32; loaded back: ...
    """
    check_choice("dtype", dtype, (None, *DTYPES))
    check_target(path)
    check_installed("The export to Hugging Face")
    check_compacted(model)
    model = _as_task(model)
    backbone: Any = model.backbone if is_task(model) else model
    with replacing(path) as folder:
        folder.mkdir()
        config, kind, dtype = _write(model, backbone, folder, dtype)
        notes = _write_tokenizer(model, folder)
        match = _check(model, backbone, config, kind, folder, dtype)
    if dtype != "float32":
        notes += (_ROUNDED.format(dtype=dtype),)
    what = f"a Hugging Face folder of {type(model).__name__}, {dtype}"
    return Export(path, what, match, notes)


def check_installed(what: str) -> None:
    """Refuses an export that could not be loaded back."""
    packages = ["safetensors", "transformers", "torch", "keras_hub"]
    require_installed(packages, what, "hub,export,torch", ExportRefused)


def _as_task(model: keras.Model) -> keras.Model:
    """The model, or the task around a backbone of a language model, in float32."""
    causal_lm = require("keras_hub", "An export", "hub").models.CausalLM
    backbone: Any = model.backbone if is_task(model) else model
    kind = type(model) if is_task(model) else task_class(causal_lm, type(model))
    exact = backbone.dtype_policy.name == "float32"
    if kind is None or not issubclass(kind, causal_lm) or (is_task(model) and exact):
        return model
    if not exact:
        copied = rebuild_backbone(backbone, {"dtype": "float32"})
        for new, old in zip(copied.variables, backbone.variables, strict=True):
            new.assign(old.value)
        backbone = copied
    preprocessor = getattr(model, "preprocessor", None)
    made: keras.Model = kind(backbone=backbone, preprocessor=preprocessor)
    return made


def _write(
    model: Any, backbone: Any, folder: pathlib.Path, dtype: str | None
) -> tuple[Any, Any, str]:
    """Writes config and weights; the config, the class of transformers, the dtype."""
    import safetensors.torch
    import torch

    given, own = _given_config(backbone, folder)
    if dtype is None:
        dtype = str(getattr(given, "dtype", None)).removeprefix("torch.")
        dtype = dtype if own and dtype in DTYPES else "float32"
    hf_config = configs.as_dict(given)
    kept = kept_of(model)
    if kept is None or not kept.has_tokenizer:
        hf_config = _with_own_tokens(model, hf_config, positions=not own)
    hf_config = configs.config_like(hf_config, backbone.get_config())
    kind = _auto_class(model)
    if not own and hasattr(model, "num_classes"):
        hf_config["num_labels"] = model.num_classes
    try:
        config = type(given).from_dict(hf_config)
        with torch.device("meta"):
            theirs = kind.from_config(config)
        config.architectures = [type(theirs).__name__]
        shapes = _shapes(theirs)
        tensors, untouched = written_weights(model, backbone, hf_config, shapes)
    except KerasIdeaError:
        raise
    except Exception as error:
        raise ExportFailed(
            f"KerasHub's importer of {hf_config['model_type']!r} cannot be run "
            f"backwards: {type(error).__name__}: {error}"
        ) from error
    # A tied matrix is written once.
    tied = untouched & set(getattr(theirs, "all_tied_weights_keys", None) or {})
    written = {
        name: torch.from_numpy(tensor).to(getattr(torch, dtype))
        for name, tensor in tensors.items()
        if name not in tied
    }
    file = folder / "model.safetensors"
    safetensors.torch.save_file(written, file, metadata={"format": "pt"})
    config.dtype = dtype
    config.save_pretrained(folder)
    return config, kind, dtype


def _given_config(backbone: Any, folder: pathlib.Path) -> tuple[Any, bool]:
    """The config to begin with, and whether it is that of the model's checkpoint."""
    kept, kind = kept_of(backbone), configs.model_type_of(backbone)
    import transformers

    if kept is not None:
        kept.write(folder)
        if "config.json" in kept.files:
            config = configs.read_config(folder)
            if converter_of(config.model_type) is converter_of(kind):
                return config, True
    default = configs.default_config(kind)
    return transformers.AutoConfig.for_model(**default), False


def _with_own_tokens(
    model: Any, hf_config: dict[str, Any], positions: bool
) -> dict[str, Any]:
    """A config with the KerasHub tokenizer's special ids, and its positions."""
    hf_config = dict(hf_config)
    preprocessor = getattr(model, "preprocessor", None)
    tokenizer = getattr(preprocessor, "tokenizer", None)
    for name, attribute in (("bos", "start"), ("eos", "end"), ("pad", "pad")):
        known = getattr(tokenizer, f"{attribute}_token_id", None)
        if tokenizer is not None and f"{name}_token_id" in hf_config:
            hf_config[f"{name}_token_id"] = None if known is None else int(known)
    length = getattr(preprocessor, "sequence_length", None)
    if positions and length and "max_position_embeddings" in hf_config:
        hf_config["max_position_embeddings"] = int(length)
    return hf_config


def _auto_class(model: Any) -> Any:
    import transformers

    if not predicts(model):
        return transformers.AutoModel
    if hasattr(model, "num_classes"):
        return transformers.AutoModelForImageClassification
    return transformers.AutoModelForCausalLM


def _shapes(theirs: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors as transformers saves them, by name, in their order."""
    from transformers import core_model_loading

    buffers = {n for n, _ in theirs.named_buffers()}
    state = {n: t for n, t in theirs.state_dict().items() if n not in buffers}
    saved = core_model_loading.revert_weight_conversion(theirs, state)
    return {name: tuple(tensor.shape) for name, tensor in saved.items()}


def _write_tokenizer(model: Any, folder: pathlib.Path) -> tuple[str, ...]:
    """Writes the KerasHub tokenizer, unless the checkpoint's own is there; notes."""
    kept, preprocessor = kept_of(model), getattr(model, "preprocessor", None)
    if (kept is not None and kept.has_tokenizer) or isinstance(
        model.input, keras.KerasTensor
    ):
        return ()
    if getattr(preprocessor, "tokenizer", None) is None:
        return (NO_TOKENIZER,)
    return write_own_tokenizer(preprocessor, folder)


def _check(
    model: Any, backbone: Any, config: Any, kind: Any, folder: pathlib.Path, dtype: str
) -> Match:
    """Compares the folder, as transformers loads it, with the model."""
    hf_config = configs.as_dict(config)
    try:
        theirs, _ = their_outputs(folder, hf_config, kind)
    except Exception as error:
        raise ExportFailed(f"transformers cannot load the export: {error}") from error
    rows = probe_rows(getattr(backbone, "image_shape", None), hf_config, None)
    ours = keras_outputs(model if predicts(model) else backbone)
    causal = kind.__name__ == "AutoModelForCausalLM"
    tolerance = _TOLERANCE if dtype == "float32" else _HALF_TOLERANCE
    return compare(expected_of(ours, rows, causal), theirs, tolerance)
