"""A KerasHub model of a Hugging Face folder, checked."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_idea.errors import LoadRefused
from keras_idea.extras import require
from keras_idea.hub.hf.check import Checked, check_ids, check_numbers, is_causal
from keras_idea.hub.hf.config import backbone_arguments
from keras_idea.hub.hf.stage import Stage, staged
from keras_idea.hub.hf.tokenizer import (
    OWN_CUT,
    cut_as,
    ids_of,
    mend_tokenizer_config,
    plain_backend,
)
from keras_idea.hub.hf.weights import mend_weights
from keras_idea.hub.rebuild import mend_get_config
from keras_idea.keras_private.variables import without_values

_NO_TOKENIZER = "It has no tokenizer."
_SPECIAL = "In a text KerasHub spells out {tokens}, which transformers reads as tokens."


# What was compared in this process already: a run loads its model more than once.
_AGREED: dict[tuple, Checked] = {}


def _state(folder: pathlib.Path) -> tuple:
    """What changes if a file of a folder does."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return (str(folder.resolve()), *((f.name, f.stat().st_mtime_ns) for f in files))


def load_folder(
    source: str | os.PathLike, dtype: str | None
) -> tuple[keras.Model, Checked]:
    """A checked KerasHub model of a Hugging Face folder, and how well it agrees.

    Raises:
        LoadRefused: if KerasHub does not compute what transformers computes.
    """
    with staged(source) as stage:
        with _told(stage):
            backbone: Any = _backbone(stage, "float32", load_weights=True)
            mend_weights(backbone, stage.told, stage.folder)
            mend_get_config(backbone)
            preprocessor, notes = _preprocessor(stage)
            causal = is_causal(stage.config)
            kind = _task_class(type(backbone), causal, stage)
            model = _around(kind, backbone, preprocessor)
        known = _state(stage.source)
        if known not in _AGREED:
            _AGREED[known] = check_numbers(backbone, model, stage, causal)
        checked = dataclasses.replace(_AGREED[known], notes=notes)
        policy = keras.dtype_policies.get(dtype or "float32")
        if policy.name == "float32":
            return model, checked
        # Compared in float32, then computed as asked for.
        other = _backbone(stage, policy, load_weights=False)
        for new, old in zip(other.variables, backbone.variables, strict=True):
            new.assign(old.value)
        return _around(kind, other, preprocessor), checked


def folder_outline(source: str | os.PathLike, dtype: Any) -> keras.Model:
    """The backbone of a Hugging Face folder, its variables without values."""
    with staged(source) as stage, _told(stage), without_values():
        return _backbone(stage, dtype, load_weights=False)


def folder_preprocessor(source: str | os.PathLike) -> Any:
    """The preprocessor of a Hugging Face folder, None if it has no tokenizer."""
    with staged(source) as stage, _told(stage):
        return _preprocessor(stage)[0]


@contextlib.contextmanager
def _told(stage: Stage) -> Iterator[None]:
    """Turns what KerasHub's converters raise into `LoadRefused`."""
    try:
        yield
    except LoadRefused:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise LoadRefused(
            f"KerasHub cannot convert this checkpoint: {type(error).__name__}: "
            f"{reason} Received: {str(stage.source)!r}, model_type="
            f"{stage.told['model_type']!r}. Give another checkpoint; docs/families.md "
            "lists the families that can be loaded."
        ) from error


def _hub() -> Any:
    return require("keras_hub", "A Hugging Face checkpoint", "hub")


def _backbone(stage: Stage, dtype: Any, load_weights: bool) -> keras.Model:
    return _hub().models.Backbone.from_preset(
        str(stage.folder),
        load_weights=load_weights,
        dtype=dtype,
        **backbone_arguments(stage.told),
    )


def _task_class(backbone: type, causal: bool, stage: Stage) -> Any:
    """The class of the task around a backbone; None: an encoder remains a backbone."""
    models = _hub().models
    if not causal and not (stage.folder / "modules.json").exists():
        return None
    kind = task_class(models.CausalLM if causal else models.TextEmbedder, backbone)
    if kind is None and causal:
        raise LoadRefused(f"KerasHub has no CausalLM of a {backbone.__name__}.")
    return kind


def task_class(base: type, backbone: type) -> Any:
    """KerasHub's class of a task around backbones of a class, or None."""
    known: Any = filter(inspect.isclass, vars(_hub().models).values())
    kinds = [kind for kind in known if issubclass(kind, base) and kind.backbone_cls]
    # A class before those that it is derived from: a Llama 3 is a Llama too.
    for own in backbone.__mro__:
        for kind in kinds:
            if kind.backbone_cls is own:
                return kind
    return None


def _around(kind: Any, backbone: keras.Model, preprocessor: Any) -> keras.Model:
    if kind is None:
        return backbone
    return kind(backbone=backbone, preprocessor=preprocessor)


def _preprocessor(stage: Stage) -> tuple[Any, tuple[str, ...]]:
    """The preprocessor whose ids are transformers' own, and notes about it."""
    if stage.tokenizer is None:
        return None, (_NO_TOKENIZER,)
    models = _hub().models
    causal = is_causal(stage.config)
    base = models.CausalLMPreprocessor if causal else models.TextEmbedderPreprocessor
    made: Any = base.from_preset(str(stage.folder))
    tokenizer, theirs = made.tokenizer, stage.tokenizer
    mend_tokenizer_config(tokenizer)

    def encode(text: str) -> list[int]:
        return theirs.encode(text, add_special_tokens=False)

    notes: list[str] = []
    if getattr(tokenizer, "merges", None) is not None:
        if check_ids(lambda text: ids_of(tokenizer, text), encode):
            cut_as(tokenizer, plain_backend(theirs))
            notes.append(OWN_CUT)
    difference = check_ids(lambda text: ids_of(tokenizer, text), encode)
    if difference:
        raise LoadRefused(
            f"KerasHub's {type(tokenizer).__name__} makes other token ids than "
            f"transformers: {difference}. Received: {str(stage.source)!r}. Give a "
            "checkpoint with another tokenizer."
        )
    spelt = [
        token
        for token in dict.fromkeys(theirs.all_special_tokens)
        if ids_of(tokenizer, f"a {token}b") != encode(f"a {token}b")
    ]
    if spelt:
        notes.append(_SPECIAL.format(tokens=", ".join(spelt)))
    if hasattr(made, "add_start_token"):
        made.add_start_token = _begins_with_start(theirs)
    return made, tuple(notes)


def _begins_with_start(tokenizer: Any) -> bool:
    """Whether transformers puts the start token before a text."""
    bare = tokenizer.encode("x", add_special_tokens=False)
    return tokenizer.encode("x")[: -len(bare) or None][:1] == [tokenizer.bos_token_id]
