"""Export to a Hugging Face folder, by KerasHub, checked with transformers."""

import json
import os
import pathlib
import types
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.hub.families import FAMILIES
from keras_idea.hub.family import HFExport
from keras_idea.hub.hf.quiet import quiet
from keras_idea.hub.hf.tensors import drop_tensor, tensor_names
from keras_idea.lm.export.compare import Match, Subject, compare
from keras_idea.lm.export.hf.tokenizer import (
    APART,
    TOKENIZER_FILES,
    settle_tokenizer,
)
from keras_idea.lm.export.stock import Stock, copy_in_float32, stock
from keras_idea.lm.export.target import (
    Export,
    ExportKind,
    check_target,
    replacing_target,
)
from keras_idea.validation import require_installed

_HINT = (
    "Train a Llama3, Mistral, Qwen or Gemma for that (its preset can be exported all "
    "the same: --preset)."
)


def hf_export_of(backbone: keras.Model) -> HFExport:
    """How KerasHub exports a stock backbone.

    Raises:
        ExportRefused: if KerasHub has no export for it, or a wrong one.
    """
    exports = {name: row.hf for name, row in FAMILIES.items() if row.hf}
    name = type(backbone).__name__
    if name not in exports:
        raise ExportRefused(
            f"KerasHub has no export to Hugging Face for {name}; it has one for "
            f"{', '.join(exports)}. {_HINT}"
        )
    for rule in exports[name].rules:
        if not rule.holds(backbone):
            raise ExportRefused(
                f"This {name} would be exported to Hugging Face wrongly: {rule.reason}"
            )
    return exports[name]


HF = ExportKind(
    "a Hugging Face folder",
    names=(
        "config.json",
        "generation_config.json",
        "model*.safetensors",
        "preprocessor_config.json",
        "processor_config.json",
        "README.md",
        *TOKENIZER_FILES,
        APART,
    ),
    marks=("config.json", "model.safetensors"),
)
_TOLERANCE = 1e-4
_HEAD = "lm_head.weight"


def check_installed(what: str) -> None:
    """Rejects an export that could not be completed and loaded back."""
    packages = ["safetensors", "transformers", "torch"]
    require_installed(packages, what, "export,torch", ExportRefused)


def export_hf(
    model: keras.Model, path: str | os.PathLike, overwrite: bool = False
) -> Export:
    """Saves a narrow model as a Hugging Face folder, in float32.

    KerasHub writes it. A tied embedding is stored once. transformers loads it back
    before it is kept: logits and greedy tokens must match the model's. If the tokenizer
    still differs, notes of the `Export` say so.

    Args:
        model: keras.Model. A stock KerasHub `CausalLM`, as from `compact` or
            `load_run`; or this package's compacted decoder, which becomes a Llama (a
            Mistral if heads were pruned).
        path: str or path. The folder.
        overwrite: bool. Whether to replace an earlier such folder. Defaults to False.

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path is taken, safetensors, transformers or torch is
            missing, the model is still prunable or takes more than text, or KerasHub
            cannot export it correctly.
        ExportFailed: If the folder does not match the model. Nothing of it is left.

    Example:
    >>> print(export_hf(ki.compact(lm), "narrow-hf"))
    narrow-hf: a Hugging Face folder of Llama3CausalLM, float32; loaded back: ...
    """
    check_target(path, HF, overwrite)
    check_installed("The export to Hugging Face")
    source = stock(model, in_float32=True)
    exported = _exportable(source.lm)
    with replacing_target(path) as temporary:
        try:
            exported.export_to_transformers(str(temporary))
        except Exception as error:
            raise ExportFailed(f"KerasHub cannot export it: {error}") from error
        _store_embedding_once(exported.backbone, temporary)
        _correct_head_dim(exported.backbone, temporary)
        match, notes = _check(source, temporary)
    what = f"a Hugging Face folder of {source.name}, float32"
    return Export(path, what, match, source.notes + notes)


def _exportable(lm: keras.Model) -> keras.Model:
    """The task that KerasHub is to export, of a class it knows."""
    known = hf_export_of(lm.backbone)
    if not known.export_as:
        return lm
    import keras_hub

    copy = copy_in_float32(lm, prefix=known.export_as)
    if lm.preprocessor is not None:
        tokenizer_class = getattr(keras_hub.tokenizers, known.tokenizer_as)
        tokenizer = tokenizer_class(proto=lm.preprocessor.tokenizer.proto)
        # All that an export asks of a preprocessor.
        copy.preprocessor = types.SimpleNamespace(tokenizer=tokenizer)
    return copy


def _store_embedding_once(backbone: keras.Model, path: pathlib.Path) -> None:
    """Removes the copy of a tied embedding that KerasHub stores as the head."""
    file = path / "model.safetensors"
    if backbone.token_embedding.tie_weights and _HEAD in tensor_names(file):
        drop_tensor(file, _HEAD)


def _correct_head_dim(backbone: keras.Model, path: pathlib.Path) -> None:
    """Says how large a head is: KerasHub divides by those that are left."""
    size = getattr(backbone, "head_dim", None)
    file = path / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    if size and config.get("head_dim", size) != size:
        config["head_dim"] = size
        file.write_text(json.dumps(config, indent=2), encoding="utf-8")


def _check(source: Stock, path: pathlib.Path) -> tuple[Match, tuple[str, ...]]:
    """`Match`, and notes, of a folder that was written."""
    model = _load(path)
    _complete_config(model, path)
    match = compare(
        source.subject,
        _subject(model),
        source.vocabulary_size,
        _TOLERANCE,
        source.probe_length,
    )
    return match, settle_tokenizer(source.lm.preprocessor, path)


def _load(path: pathlib.Path) -> Any:
    """The model that transformers loads from a folder."""
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    with quiet(transformers):
        try:
            model = auto.from_pretrained(path, dtype="float32")
        except Exception as error:
            raise ExportFailed(
                f"transformers cannot load what KerasHub exported: {error}"
            ) from error
    model.eval().requires_grad_(False)
    # What ends a text is not what is compared.
    model.generation_config.eos_token_id = None
    return model


def _complete_config(model: Any, path: pathlib.Path) -> None:
    """Says what KerasHub does not and servers, and llama.cpp's converter, ask for."""
    file = path / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config.setdefault("architectures", [type(model).__name__])
    if "n_positions" in config:  # GPT-2's
        config.setdefault("n_ctx", config["n_positions"])
    file.write_text(json.dumps(config, indent=2), encoding="utf-8")


def _subject(model: Any) -> Subject:
    """A model of transformers as a `Subject`."""
    import transformers

    def batch(ids_BT: np.ndarray) -> Any:
        inputs = {"input_ids": ids_BT, "attention_mask": np.ones_like(ids_BT)}
        inputs = {name: array.astype("int64") for name, array in inputs.items()}
        # So that this package does not import torch.
        return transformers.BatchEncoding(inputs, tensor_type="pt")

    def logits(ids_BT: np.ndarray) -> np.ndarray:
        return model(**batch(ids_BT)).logits.numpy()

    def greedy(ids_BP: np.ndarray, num_tokens: int) -> np.ndarray:
        outputs = model.generate(
            **batch(ids_BP), do_sample=False, max_new_tokens=num_tokens
        )
        return outputs.numpy()

    return Subject(logits, greedy)
