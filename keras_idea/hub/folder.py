"""A KerasHub model of a Hugging Face folder, compared with transformers.

Shapes: B batch, T tokens.
"""

import atexit
import contextlib
import dataclasses
import gc
import inspect
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._keras.hub_importers import converter_of
from keras_idea._keras.variables import without_values
from keras_idea._validation import require, require_installed
from keras_idea.errors import KerasIdeaError, LoadRefused
from keras_idea.hub import configs, tokenizers
from keras_idea.hub.compare import (
    TEXTS,
    Match,
    Outputs,
    compare,
    expected_of,
    image_rows,
    keras_outputs,
    token_rows,
)
from keras_idea.hub.importer import Files, read_weights, weight_files
from keras_idea.hub.kept import keep, read_kept
from keras_idea.hub.rebuild import patch_get_config

#: The file by which a folder is known to be Hugging Face's, and not KerasHub's.
CONFIG = "config.json"
# Largest difference for outputs of at most 1; it grows with the largest output.
_TOLERANCE = 2e-5
_LENGTH = 64
_GELU = (
    "KerasHub 0.32 computes this family's GELU with the tanh approximation, which "
    "changes outputs a little. Everything else was compared."
)
_MORE = "transformers has no place for some tensors of its file: {names}."
_NO_POOLING = "It has no modules.json: its embeddings are the mean of its outputs."
_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
# How KerasHub's message begins if a preset is not found (0.32).
_UNKNOWN = "Unknown preset identifier"


@dataclasses.dataclass(frozen=True)
class Folder:
    """A checkpoint that is prepared once, and read by each function here."""

    source: pathlib.Path  # as it was given
    staged: pathlib.Path  # with the files that KerasHub's tokenizers are made of
    config: Any  # the `PretrainedConfig`
    hf_config: dict[str, Any]  # all keys of it
    tokenizer: Any  # transformers', or None


_PREPARED: dict[tuple, Folder] = {}
# What was compared in this process already: a run loads its model more than once.
_AGREED: dict[tuple, tuple[Match, tuple[str, ...]]] = {}


def is_hf_folder(path: str | os.PathLike) -> bool:
    """Whether `path` is a folder that transformers wrote, and no KerasHub preset.

    Raises:
        LoadRefused: if its config is no JSON.
    """
    file = pathlib.Path(path) / CONFIG
    try:
        config = configs.read_json(file)
    except OSError:
        return False
    except ValueError as error:
        raise LoadRefused(
            f"{str(file)!r} is damaged: {error}. Download it again."
        ) from error
    return isinstance(config, dict) and "model_type" in config


def prepared(source: str | os.PathLike) -> Folder:
    """The `Folder` of a source; prepared once per process, until a file changes.

    Raises:
        LoadRefused: if KerasHub cannot compute what its config describes.
    """
    given = pathlib.Path(source)
    state = _state(given)
    if state not in _PREPARED:
        packages = ["transformers", "torch", "keras_hub"]
        require_installed(packages, "A Hugging Face checkpoint", "hub,export,torch")
        with as_load_refused(source):
            config = configs.read_config(given)
            configs.check_config(config)
            weight_files(given)
            tokenizer = tokenizers.read_tokenizer(given)
        hf_config = configs.as_dict(config)
        staged = pathlib.Path(tempfile.mkdtemp(prefix="keras_idea_"))
        atexit.register(shutil.rmtree, staged, ignore_errors=True)
        text = json.dumps(configs.staged_config(hf_config), indent=1, default=str)
        (staged / CONFIG).write_text(text, encoding="utf-8")
        for name in ("sentence_bert_config.json", "preprocessor_config.json"):
            if (given / name).is_file():
                shutil.copy(given / name, staged / name)
        if tokenizer is not None:
            kind = hf_config["model_type"]
            tokenizers.write_tokenizer(tokenizer, given, staged, kind)
        _PREPARED[state] = Folder(given, staged, config, hf_config, tokenizer)
    return _PREPARED[state]


def _state(folder: pathlib.Path) -> tuple:
    """What changes if a file of a folder does."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return (str(folder.resolve()), *((f.name, f.stat().st_mtime_ns) for f in files))


def load_folder(
    source: str | os.PathLike, dtype: str, check: bool
) -> tuple[keras.Model, tuple[str, ...]]:
    """A KerasHub model of a Hugging Face folder, and lines about it.

    It is compared in float32, once per process, and then made in the dtype. The model
    of transformers is gone before KerasHub's is made, so that the two are never in
    memory together.

    Raises:
        LoadRefused: if KerasHub does not compute what transformers computes.
    """
    folder = prepared(source)
    with as_load_refused(source):
        state, policy = _state(folder.source), keras.dtype_policies.get(dtype)
        kind = _task_class(folder)
        preprocessor, notes = _preprocessor(folder, kind)
        options, more = _options(folder, kind)
        compared = check and state not in _AGREED
        expected = found = None
        if compared:
            theirs, found = their_outputs(
                folder.source, folder.hf_config, _auto(folder)
            )
            shape = configs.backbone_arguments(folder.hf_config).get("image_shape")
            rows = probe_rows(shape, folder.hf_config, folder.tokenizer)
            expected = expected_of(theirs, rows, configs.is_causal(folder.config))
            del theirs
            gc.collect()
        backbone: Any = _backbone(folder, "float32" if compared else policy)
        read_weights(backbone, folder.hf_config, folder.source)
        model = _around(kind, backbone, preprocessor, options, folder)
        if expected is not None and found is not None:
            outputs = keras_outputs(model if predicts(model) else backbone)
            try:
                match = compare(expected, outputs, _TOLERANCE, LoadRefused)
            except LoadRefused as error:
                raise LoadRefused(
                    f"KerasHub's model is not the checkpoint's. {error} Received: "
                    f"{str(source)!r}. Give another checkpoint; if it has a lm_head of "
                    "its own, set tie_word_embeddings to false in its config."
                ) from None
            _AGREED[state] = match, found
            if policy.name != "float32":
                other = _backbone(folder, policy)
                for new, old in zip(other.variables, backbone.variables, strict=True):
                    new.assign(old.value)
                backbone = other
                model = _around(kind, backbone, preprocessor, options, folder)
        if check:
            match, said = _AGREED[state]
            notes = (f"Compared with transformers: {match}.", *said, *notes, *more)
    keep(backbone, read_kept(folder.source))
    return model, notes


def folder_outline(source: str | os.PathLike, dtype: Any) -> keras.Model:
    """The backbone of a Hugging Face folder, its variables without values."""
    folder = prepared(source)
    with as_load_refused(source), without_values():
        return _backbone(folder, dtype)


def folder_preprocessor(source: str | os.PathLike) -> Any:
    """The preprocessor of a Hugging Face folder, None if it has no tokenizer."""
    folder = prepared(source)
    with as_load_refused(source):
        return _preprocessor(folder, _task_class(folder))[0]


@contextlib.contextmanager
def as_load_refused(source: str | os.PathLike) -> Iterator[None]:
    """Turns what KerasHub or transformers raise into `LoadRefused`."""
    try:
        yield
    except KerasIdeaError:  # which says what to do
        raise
    # From many places: no such folder or handle, no network, files that are damaged.
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        if reason.startswith(_UNKNOWN):  # what follows lists ways, but not this name's
            reason = (
                "it is neither a folder here, nor a built-in preset of KerasHub, nor a "
                "handle such as 'hf://user/name'."
            )
        raise LoadRefused(
            f"{str(source)!r} cannot be loaded: {type(error).__name__}: {reason} Give "
            "a KerasHub preset, a Hugging Face folder or a GGUF file; "
            "docs/families.md lists the families that can be loaded."
        ) from error


def _models() -> Any:
    return require("keras_hub", "A Hugging Face checkpoint", "hub").models


def _backbone_class(folder: Folder) -> Any:
    if _is_llama2(folder):
        # KerasHub makes every Llama a Llama 3, whose tokenizer is byte-level.
        return _models().LlamaBackbone
    return converter_of(folder.hf_config["model_type"]).backbone_cls


def _backbone(folder: Folder, dtype: Any) -> keras.Model:
    arguments = configs.backbone_arguments(folder.hf_config)
    made: keras.Model = _backbone_class(folder)(**{**arguments, "dtype": dtype})
    patch_get_config(made)
    return made


def _is_llama2(folder: Folder) -> bool:
    llama = folder.hf_config["model_type"] == "llama"
    return llama and tokenizers.is_sentencepiece(folder.tokenizer)


def _classifies(folder: Folder) -> bool:
    architecture = (folder.config.architectures or [""])[0]
    return str(architecture).endswith("ForImageClassification")


def _task_class(folder: Folder) -> Any:
    """The class of the task around a folder's backbone; None: it has none."""
    models, backbone = _models(), _backbone_class(folder)
    if "vocab_size" not in folder.hf_config:
        classifier = task_class(models.ImageClassifier, backbone)
        return classifier if _classifies(folder) else None
    if configs.is_causal(folder.config):
        return task_class(models.CausalLM, backbone)
    if folder.hf_config["model_type"] in configs.LANGUAGE_MODELS:
        return None
    return task_class(models.TextEmbedder, backbone)


def _auto(folder: Folder) -> Any:
    """The class of transformers that computes what the KerasHub model does."""
    import transformers

    if configs.is_causal(folder.config):
        return transformers.AutoModelForCausalLM
    if _classifies(folder):
        return transformers.AutoModelForImageClassification
    return transformers.AutoModel


def predicts(model: Any) -> bool:
    """Whether a task computes logits, as its counterpart in transformers does."""
    return isinstance(model, (_models().CausalLM, _models().ImageClassifier))


def task_class(base: type, backbone: type) -> Any:
    """KerasHub's class of a task around backbones of a class, or None."""
    known: Any = filter(inspect.isclass, vars(_models()).values())
    kinds = [kind for kind in known if issubclass(kind, base)]
    # A class before those that it is derived from: a Llama 3 is a Llama too.
    for own in backbone.__mro__:
        classes = [kind for kind in kinds if kind.backbone_cls is own]
        if classes:  # a Gemma4CausalLM before a Gemma4AssistantCausalLM
            return min(classes, key=lambda kind: len(kind.__name__))
    return None


def _around(
    kind: Any, backbone: keras.Model, preprocessor: Any, options: Any, folder: Folder
) -> keras.Model:
    if kind is None:
        return backbone
    task: keras.Model = kind(backbone=backbone, preprocessor=preprocessor, **options)
    if issubclass(kind, _models().ImageClassifier):
        with Files(folder.source) as files:
            converter = converter_of(folder.hf_config["model_type"])
            converter.convert_head(task, files, folder.hf_config)
    return task


def _options(folder: Folder, kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of a classifier or an embedder, and notes."""
    models, file = _models(), folder.source / "modules.json"
    if kind is None or issubclass(kind, models.CausalLM):
        return {}, ()
    if issubclass(kind, models.ImageClassifier):
        return {"num_classes": len(folder.hf_config["id2label"])}, ()
    if not file.is_file():
        return {"pooling_mode": "mean", "normalize": False}, (_NO_POOLING,)
    modules = configs.read_json(file)
    modes: list[str] = []
    paths = {m["type"].rpartition(".")[2]: m["path"] for m in modules}
    known = {"Transformer", "Pooling", "Normalize"}
    if "Pooling" in paths and paths.keys() <= known and len(paths) == len(modules):
        config = configs.read_json(folder.source / paths["Pooling"] / CONFIG)
        modes = [k for k, on in config.items() if "pooling_mode_" in k and on is True]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise LoadRefused(
            "KerasHub's embedders know Transformer, Pooling and Normalize, and pool by "
            f"one of {', '.join(_POOLINGS.values())}. Received: modules.json with "
            f"{', '.join([*paths, *modes])}. Give another checkpoint."
        )
    pooling = _POOLINGS[modes[0]]
    return {"pooling_mode": pooling, "normalize": "Normalize" in paths}, ()


def _preprocessor(folder: Folder, kind: Any) -> tuple[Any, tuple[str, ...]]:
    if folder.tokenizer is None or kind is None:
        return None, ()
    llama2, causal = _is_llama2(folder), configs.is_causal(folder.config)
    return tokenizers.preprocessor_like(
        kind, folder.tokenizer, folder.staged, llama2, causal
    )


def their_outputs(
    folder: pathlib.Path, hf_config: Mapping[str, Any], auto: Any
) -> tuple[Outputs, tuple[str, ...]]:
    """What transformers computes of a folder in float32, and notes.

    Its GELU is KerasHub's approximation, so that all else is compared exactly.

    Raises:
        LoadRefused: if its files lack tensors.
    """
    import transformers

    # With "sdpa" some models leave out the caps on their scores.
    options = {"dtype": "float32", "output_loading_info": True}
    options["ignore_mismatched_sizes"] = True  # they are refused below
    if hf_config.get("vocab_size"):
        options["attn_implementation"] = "eager"
    approximated = configs.rules_of(hf_config).approximated
    own = hf_config.get(approximated) == "gelu"
    options |= {approximated: "gelu_pytorch_tanh"} if own else {}
    with quiet():
        model, info = auto.from_pretrained(folder, **options)
    lacking = [name for name in info["missing_keys"] if "pooler" not in name]
    lacking += [str(name) for name in info.get("mismatched_keys") or ()]
    if lacking:
        raise LoadRefused(
            f"Its weights lack tensors that its config describes: {_some(lacking)}. "
            f"Received: {str(folder)!r}. Download it again, or correct its config."
        )
    model.eval().requires_grad_(False)
    if hasattr(model, "set_experts_implementation"):
        # Its grouped products demand widths that are multiples of 4.
        with contextlib.suppress(ValueError):  # it is no mixture of experts
            model.set_experts_implementation("eager")

    def outputs(row: np.ndarray) -> np.ndarray:
        if row.dtype.kind == "f":
            inputs = {"pixel_values": np.moveaxis(row, -1, 1)}
        else:
            inputs = {"input_ids": row.astype("int64")}
            inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
        # So that this package does not import torch.
        batch: Any = transformers.BatchEncoding(inputs, tensor_type="pt")
        found = model(**batch)
        logits = getattr(found, "logits", None)
        values: Any = found.last_hidden_state if logits is None else logits
        received: np.ndarray = values.float().numpy()
        return received

    more = sorted(info["unexpected_keys"])
    notes = (_MORE.format(names=_some(more)),) if more else ()
    return outputs, notes + ((_GELU,) if own else ())


def _some(names: Sequence[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" * (len(names) > 3))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Transformers without its progress bars and warnings."""
    import transformers

    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()


def probe_rows(
    image_shape: Any, hf_config: Mapping[str, Any], tokenizer: Any
) -> list[np.ndarray]:
    """Inputs to compare on: an image, or tokens, random and of a text.

    One row is longer than a sliding window.
    """
    size = hf_config.get("vocab_size")
    if not size:
        return [image_rows(image_shape)]
    length = configs.compared_length(hf_config, _LENGTH)
    padding = hf_config.get("pad_token_id")
    lengths = dict.fromkeys((min(length, _LENGTH), length))
    rows = [token_rows(size, each, padding) for each in lengths]
    ids = [] if tokenizer is None else tokenizer.encode(TEXTS[1] * 4)
    ids = ids[: min(length, _LENGTH)]
    if max(ids, default=0) >= size:
        raise LoadRefused(
            "Its tokenizer has more tokens than its model. Received: token id "
            f"{max(ids)}, vocab_size={size}. Give the checkpoint its own tokenizer."
        )
    if len(ids) > 1:
        rows.append(np.asarray([ids], "int32"))
    return rows
