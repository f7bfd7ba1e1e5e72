"""One way in for checkpoints: KerasHub's, Hugging Face's, and GGUF files."""

import json
import os
import pathlib
import re
from typing import Any, NamedTuple

import keras

from keras_idea import _processes as processes
from keras_idea._keras.variables import without_values
from keras_idea._validation import require
from keras_idea.errors import LoadRefused
from keras_idea.hub import kept
from keras_idea.hub.families import is_task
from keras_idea.hub.folder import (
    as_load_refused,
    folder_outline,
    folder_preprocessor,
    is_hf_folder,
    load_folder,
    task_class,
)
from keras_idea.hub.gguf_file import dequantized, is_gguf
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.hub.tokenizers import mend_tokenizer_config, restore_cut

#: The most memory that loading takes, as a multiple of the weights in float32; measured
#: by benchmarks/loading_memory.py.
PEAK = 2.2
_INDEX = "model.safetensors.index.json"
# What is downloaded of a Hugging Face checkpoint besides its weights.
_FILES = ["*.json", "*.model", "*.txt", "*.jinja", "1_Pooling/*"]
_GGUF = "Its weights were {types}; they are float32 now and keep that rounding."
# Sources and what was said of them: a run loads its model more than once.
_SAID: set[tuple[str, tuple[str, ...]]] = set()


def load(
    source: str | os.PathLike, dtype: str | None = None, check: bool = True
) -> keras.Model:
    """Loads a released checkpoint as a stock KerasHub model, and checks it.

    A Hugging Face folder or a GGUF file is compared with transformers: its outputs on
    a few rows of tokens, greedy tokens, and the token ids of texts. What KerasHub 0.32
    loses on the way is corrected where that can be exact. The rest is rejected, so that
    a loaded model computes what the checkpoint does. How it was compared, and what
    differs all the same, is printed once per process. The model keeps the checkpoint's
    config, tokenizer and chat template for its export.

    Args:
        source: str or path. One of: a KerasHub preset, as a folder or a handle
            ("hf://user/name", "llama3_8b_en"); a folder as transformers'
            `save_pretrained` writes it; a GGUF file (its numbers are dequantized).
        dtype: str or None. The dtype policy to compute in. Defaults to None: Keras's
            own, `keras.config.dtype_policy()`.
        check: bool. Whether to compare the outputs. Loading then takes at most 2.2
            times the memory of the weights in float32. Defaults to True.

    Returns:
        A KerasHub task: a `CausalLM` with its preprocessor, of an encoder a
        `TextEmbedder`, of an image model an `ImageClassifier`; or the backbone where
        KerasHub has no task for it.

    Raises:
        ValueError: If there is no such checkpoint, it cannot be loaded, or KerasHub
            computes something else. The message says how far off it is, or which config
            keys KerasHub ignores.
        ImportError: If a package is missing: `keras-idea[hub,export,torch]`, of GGUF
            files also `[gguf]`.

    Example:
    >>> lm = load("preset")  # or "SmolLM2-135M", "model-q4_k_m.gguf"
    >>> type(lm).__name__
    'Llama3CausalLM'
    """
    model, lines = load_with_notes(source, dtype, check)
    said = (str(source), lines)
    if lines and said not in _SAID and processes.is_first():
        print("\n".join((f"Loaded {source}", *lines)), flush=True)
    _SAID.add(said)
    return model


class Loaded(NamedTuple):
    """A model, and the lines that `load` prints; none of a preset."""

    model: keras.Model
    lines: tuple[str, ...] = ()


def load_with_notes(
    source: str | os.PathLike, dtype: str | None = None, check: bool = True
) -> Loaded:
    """As `load`, which prints the lines."""
    folder = hf_folder(source)
    if folder is None:
        return Loaded(_preset(source, dtype))
    policy = dtype or keras.config.dtype_policy().name
    model, lines = load_folder(folder, policy, check)
    if is_gguf(source):
        lines += (_GGUF.format(types=dequantized(source).types),)
    return Loaded(model, lines)


def outline(source: str | os.PathLike, dtype: Any) -> keras.Model:
    """The backbone of a checkpoint, its variables without values."""
    folder = hf_folder(source)
    if folder is not None:
        return folder_outline(folder, dtype)
    hub = require("keras_hub", "A KerasHub model", "hub")
    with as_load_refused(source), without_values():
        backbone = hub.models.Backbone
        return backbone.from_preset(str(source), load_weights=False, dtype=dtype)


def check_language_model(source: str | os.PathLike, model: keras.Model) -> None:
    """Rejects a checkpoint, given its task or outline, that is no causal LM."""
    hub = require("keras_hub", "A KerasHub model", "hub").models
    kind = type(model) if is_task(model) else task_class(hub.CausalLM, type(model))
    causal = kind is not None and issubclass(kind, hub.CausalLM)
    if not causal or issubclass(kind, hub.Seq2SeqLM):
        raise LoadRefused(
            "The command line supports causal language models. Received: "
            f"{str(source)!r}, a {type(model).__name__}. Give a causal language model."
        )


def preprocessor_of(source: str | os.PathLike) -> Any:
    """The `CausalLMPreprocessor` of a checkpoint; rejects one without a tokenizer."""
    folder = hf_folder(source)
    if folder is not None:
        made = folder_preprocessor(folder)
    else:
        hub = require("keras_hub", "A KerasHub model", "hub")
        with as_load_refused(source):
            made = hub.models.CausalLMPreprocessor.from_preset(str(source))
    if made is None:
        raise LoadRefused(f"{str(source)!r} has no tokenizer. Save it with one.")
    return _with_own_cut(made, source)


def hf_folder(source: str | os.PathLike) -> pathlib.Path | None:
    """The Hugging Face folder of a source; for a GGUF file, one made from it.

    None if it is a KerasHub preset or does not exist.
    """
    text = str(source)
    if text.startswith("hf://"):
        return _downloaded(text)
    path = pathlib.Path(source)
    if is_gguf(path):
        return dequantized(path).folder
    if path.suffix.lower() == ".gguf" and path.exists():
        raise LoadRefused(
            f"{text!r} is no GGUF file: it does not begin with 'GGUF'. Get it again."
        )
    return path if is_hf_folder(path) else None


def check_not_quantized(preset: str | os.PathLike) -> None:
    """Refuses, before weights are read, a preset of which no smaller model is made."""
    if _is_quantized(preset):
        raise LoadRefused(
            f"The preset {str(preset)!r} is quantized, so that no smaller model could "
            "be made of it from its config. Prune first, then quantize."
        )


def _is_quantized(preset: str | os.PathLike) -> bool:
    """Whether a preset folder holds a quantized model, as Keras's `quantize`."""
    config = pathlib.Path(preset) / "config.json"
    text = config.read_text("utf-8") if config.is_file() else ""
    kinds = r'"(Quantized|QuantizedFloat8|Int4|GPTQ|AWQ)DTypePolicy"'
    return re.search(kinds, text) is not None


def _preset(source: str | os.PathLike, dtype: str | None) -> keras.Model:
    """The task of a KerasHub preset, of an encoder without one its backbone."""
    models = require("keras_hub", "A KerasHub model", "hub").models
    preset, local = str(source), pathlib.Path(source)
    tokenizer = not local.is_dir() or (local / "tokenizer.json").is_file()
    # Without a tokenizer KerasHub would not load a backbone's preset.
    options: dict[str, Any] = {} if tokenizer else {"preprocessor": None}
    with as_load_refused(source):
        # A quantized one has its own dtypes: KerasHub reads its weights as no other.
        dtype = None if _is_quantized(source) else dtype
        kind = type(outline(source, dtype))
        # Its own class: KerasHub may pick the assistant class for a Gemma 4.
        task_kind = task_class(models.CausalLM, kind)
        task_kind = task_kind or task_class(models.TextEmbedder, kind)
        if task_kind is None:
            model: Any = models.Backbone.from_preset(preset, dtype=dtype)
        else:
            model = task_kind.from_preset(preset, dtype=dtype, **options)
            if tokenizer and model.preprocessor is None:  # saved beside a task
                model.preprocessor = task_kind.preprocessor_cls.from_preset(preset)
    _with_own_cut(getattr(model, "preprocessor", None), source)
    patch_get_config(model.backbone if is_task(model) else model)
    if local.is_dir():
        kept.keep(model, kept.read_kept(local / kept.FOLDER))
    return model


def _with_own_cut(preprocessor: Any, source: str | os.PathLike) -> Any:
    """A preset's preprocessor, whose tokenizer cuts words as its checkpoint's does."""
    tokenizer = getattr(preprocessor, "tokenizer", None)
    if tokenizer is not None:
        mend_tokenizer_config(tokenizer)
        restore_cut(tokenizer, source)
    return preprocessor


def _downloaded(handle: str) -> pathlib.Path | None:
    """The local copy of a Hugging Face checkpoint; None: it is a KerasHub preset."""
    import huggingface_hub as hub

    name = handle.removeprefix("hf://")
    try:
        config = hub.hf_hub_download(name, "config.json")
        if not is_hf_folder(pathlib.Path(config).parent):
            return None
        # A repository may hold the same weights several times.
        weights = {"model.safetensors"}
        if hub.file_exists(name, _INDEX):
            index = pathlib.Path(hub.hf_hub_download(name, _INDEX))
            weights = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        return pathlib.Path(
            hub.snapshot_download(name, allow_patterns=[*_FILES, *sorted(weights)])
        )
    except Exception as error:  # no such repository, no network, a gated model
        raise LoadRefused(
            f"{handle!r} cannot be downloaded: {' '.join(str(error).split())} Give a "
            "folder, or log in with `hf auth login`."
        ) from error
