"""A KerasHub model of a Hugging Face folder, compared with transformers.

Shapes: B batch, T tokens.
"""

import atexit
import contextlib
import dataclasses
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

from keras_idea.errors import KerasIdeaError, LoadRefused
from keras_idea.hub import configs, tokenizers
from keras_idea.hub.compare import (
    TEXTS,
    Match,
    compare,
    image_rows,
    keras_outputs,
    token_rows,
)
from keras_idea.hub.importer import Files, read_weights, weight_files
from keras_idea.hub.kept import keep, read_kept
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.keras_private.hub_importers import converter_of
from keras_idea.keras_private.variables import without_values
from keras_idea.validation import require, require_installed

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
_POOLINGS = ("mean", "cls", "max")


@dataclasses.dataclass(frozen=True)
class Folder:
    """A checkpoint that is prepared once, and read by each function here.

    Attributes:
        source: path of the folder that was given.
        staged: path of a folder with the files that KerasHub's tokenizers are made of.
        config: the `PretrainedConfig`.
        hf_config: dict, all keys of that config.
        tokenizer: transformers' tokenizer, or None.
    """

    source: pathlib.Path
    staged: pathlib.Path
    config: Any
    hf_config: dict[str, Any]
    tokenizer: Any


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
        what = "A Hugging Face checkpoint"
        require_installed(["transformers"], what, "export")
        require_installed(["torch"], what, "torch")
        require_installed(["keras_hub"], what, "hub")
        config = configs.read_config(given)
        hf_config = configs.as_dict(config)
        configs.check_config(config)
        weight_files(given)
        tokenizer = tokenizers.read_tokenizer(given)
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

    It is compared in float32, once per process, and then made in the dtype.

    Raises:
        LoadRefused: if KerasHub does not compute what transformers computes.
    """
    folder = prepared(source)
    with _as_load_refused(folder):
        policy = keras.dtype_policies.get(dtype)
        state = _state(folder.source)
        compared = check and state not in _AGREED
        first = "float32" if compared else policy
        backbone: Any = _backbone(folder, first)
        read_weights(backbone, folder.hf_config, folder.source)
        kind = _task_class(type(backbone), folder)
        preprocessor, notes = _preprocessor(folder, kind)
        options, more = _options(folder, kind)
        model = _around(kind, backbone, preprocessor, options, folder)
        if compared:
            _AGREED[state] = _compare(folder, model, backbone)
        if check:
            match, said = _AGREED[state]
            notes = (f"Compared with transformers: {match}.", *said, *notes, *more)
        if compared and policy.name != "float32":
            other = _backbone(folder, policy)
            for new, old in zip(other.variables, backbone.variables, strict=True):
                new.assign(old.value)
            backbone = other
            model = _around(kind, backbone, preprocessor, options, folder)
    keep(backbone, read_kept(folder.source))
    return model, notes


def folder_outline(source: str | os.PathLike, dtype: Any) -> keras.Model:
    """The backbone of a Hugging Face folder, its variables without values."""
    folder = prepared(source)
    with _as_load_refused(folder), without_values():
        return _backbone(folder, dtype)


def folder_preprocessor(source: str | os.PathLike) -> Any:
    """The preprocessor of a Hugging Face folder, None if it has no tokenizer."""
    folder = prepared(source)
    with _as_load_refused(folder):
        return _preprocessor(folder, _task_class(_backbone_class(folder), folder))[0]


@contextlib.contextmanager
def _as_load_refused(folder: Folder) -> Iterator[None]:
    """Turns what KerasHub or transformers raise into `LoadRefused`."""
    try:
        yield
    except KerasIdeaError:  # which says what to do
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise LoadRefused(
            f"It cannot be converted and compared: {type(error).__name__}: "
            f"{reason} Received: {str(folder.source)!r}, model_type="
            f"{folder.hf_config['model_type']!r}. Give another checkpoint; "
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


def _task_class(backbone: type, folder: Folder) -> Any:
    """The class of the task around a backbone; None: it remains a backbone."""
    models = _models()
    architecture = (folder.config.architectures or [""])[0]
    if "vocab_size" not in folder.hf_config:
        classifies = architecture.endswith("ForImageClassification")
        return task_class(models.ImageClassifier, backbone) if classifies else None
    causal = configs.is_causal(folder.config)
    if not causal and folder.hf_config["model_type"] in configs.LANGUAGE_MODELS:
        return None
    kind = task_class(models.CausalLM if causal else models.TextEmbedder, backbone)
    if kind is None and causal:
        raise LoadRefused(
            f"KerasHub has no CausalLM of a {backbone.__name__}. Received: "
            f"architectures={folder.config.architectures}. Give another checkpoint."
        )
    return kind


def task_class(base: type, backbone: type) -> Any:
    """KerasHub's class of a task around backbones of a class, or None."""
    # A class before those that it is derived from: a Llama 3 is a Llama too.
    for own in backbone.__mro__:
        classes = _tasks(base, own)
        if classes:  # a Gemma4CausalLM before a Gemma4AssistantCausalLM
            return min(classes, key=lambda kind: len(kind.__name__))
    return None


def loading_class(task: Any) -> str:
    """The KerasHub class whose `from_preset` gives this causal LM its own class.

    `CausalLM` if such backbones have only one task class, else the LM's own class.
    """
    causal = _models().CausalLM
    alone = len(_tasks(causal, type(task.backbone))) == 1
    return (causal if alone else type(task)).__name__


def _tasks(base: type, backbone: type) -> list[Any]:
    known: Any = filter(inspect.isclass, vars(_models()).values())
    kinds = [kind for kind in known if issubclass(kind, base)]
    return [kind for kind in kinds if kind.backbone_cls is backbone]


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
    models = _models()
    if kind is None or issubclass(kind, models.CausalLM):
        return {}, ()
    if issubclass(kind, models.ImageClassifier):
        return {"num_classes": len(folder.hf_config["id2label"])}, ()
    file = folder.source / "modules.json"
    if not file.is_file():
        return {"pooling_mode": "mean", "normalize": False}, (_NO_POOLING,)
    modules = configs.read_json(file)
    types = [str(module["type"]).rpartition(".")[2] for module in modules]
    pooling = [m["path"] for m, t in zip(modules, types, strict=True) if t == "Pooling"]
    if len(pooling) != 1 or set(types) - {"Transformer", "Pooling", "Normalize"}:
        raise LoadRefused(
            "KerasHub's embedders know Transformer, Pooling and Normalize alone. "
            f"Received: modules.json with {', '.join(types)}. Give another checkpoint."
        )
    config = configs.read_json(folder.source / pooling[0] / CONFIG)
    modes = [key for key, on in config.items() if "pooling_mode_" in key and on is True]
    names = [m.removeprefix("pooling_mode_").removesuffix("_tokens") for m in modes]
    names = [name.removesuffix("_token") for name in names]
    if len(names) != 1 or names[0] not in _POOLINGS:
        raise LoadRefused(
            f"KerasHub's embedders pool by one of {', '.join(_POOLINGS)}. Received: "
            f"{', '.join(modes) or config!r}. Give another checkpoint."
        )
    return {"pooling_mode": names[0], "normalize": "Normalize" in types}, ()


def _preprocessor(folder: Folder, kind: Any) -> tuple[Any, tuple[str, ...]]:
    if folder.tokenizer is None or kind is None:
        return None, ()
    llama2 = _is_llama2(folder)
    causal = configs.is_causal(folder.config)
    return tokenizers.preprocessor_like(
        kind, folder.tokenizer, folder.staged, llama2, causal
    )


def _compare(
    folder: Folder, model: Any, backbone: Any
) -> tuple[Match, tuple[str, ...]]:
    """Compares a model in float32 with transformers'; notes of its weights."""
    import transformers

    ours: Any = backbone
    auto: Any = transformers.AutoModel
    models, causal = _models(), configs.is_causal(folder.config)
    if causal:
        ours, auto = model, transformers.AutoModelForCausalLM
    elif isinstance(model, models.ImageClassifier):
        ours, auto = model, transformers.AutoModelForImageClassification
    theirs, notes = their_outputs(folder.source, folder.hf_config, auto)
    rows = probe_rows(backbone, folder.hf_config, folder.tokenizer)
    try:
        match = compare(
            theirs, keras_outputs(ours), rows, _TOLERANCE, causal, LoadRefused
        )
    except LoadRefused as error:
        cure = "Give another checkpoint: this one would be trained as another model."
        if theirs.own_head and folder.hf_config.get("tie_word_embeddings"):
            cure = "Set tie_word_embeddings to false in its config: it has a lm_head."
        raise LoadRefused(
            f"KerasHub's model differs from the checkpoint's. {error} Received: "
            f"{str(folder.source)!r}, model_type={folder.hf_config['model_type']!r}. "
            f"{cure}"
        ) from None
    return match, notes


class TheirOutputs:
    """What a model of transformers computes; `own_head`: its files have a lm_head."""

    def __init__(self, model: Any, own_head: bool) -> None:
        self._model, self.own_head = model, own_head

    def __call__(self, row: np.ndarray) -> np.ndarray:
        """Logits (B, T, V), or the last hidden states; of images as of token ids."""
        import transformers

        if row.dtype.kind == "f":
            inputs = {"pixel_values": np.moveaxis(row, -1, 1)}
        else:
            inputs = {"input_ids": row.astype("int64")}
            inputs["attention_mask"] = np.ones_like(inputs["input_ids"])
        # So that this package does not import torch.
        batch: Any = transformers.BatchEncoding(inputs, tensor_type="pt")
        found = self._model(**batch)
        outputs = getattr(found, "logits", None)
        outputs = found.last_hidden_state if outputs is None else outputs
        values: np.ndarray = outputs.float().numpy()
        return values


def their_outputs(
    folder: pathlib.Path, hf_config: Mapping[str, Any], auto: Any
) -> tuple[TheirOutputs, tuple[str, ...]]:
    """The model of a folder as transformers loads it in float32, and notes.

    Its GELU is KerasHub's approximation, so that all else is compared exactly.

    Raises:
        LoadRefused: if its files lack tensors.
    """
    # Of "sdpa" some models leave out the caps on their scores.
    options = {"dtype": "float32", "output_loading_info": True}
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
    more = sorted(info["unexpected_keys"])
    notes = (_MORE.format(names=_some(more)),) if more else ()
    head = any("lm_head" in name for name in more) or _has_head(folder)
    return TheirOutputs(model, head), notes + ((_GELU,) if own else ())


def _has_head(folder: pathlib.Path) -> bool:
    with Files(folder) as files:
        return "lm_head.weight" in files.names


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
    backbone: Any, hf_config: Mapping[str, Any], tokenizer: Any
) -> list[np.ndarray]:
    """Inputs to compare on: an image, or tokens, random and of a text.

    One row is longer than a sliding window.
    """
    size = hf_config.get("vocab_size")
    if not size:
        return [image_rows(backbone.image_shape)]
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
