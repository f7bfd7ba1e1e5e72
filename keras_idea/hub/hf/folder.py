"""A KerasHub model of a Hugging Face folder, checked."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_idea.errors import KerasIdeaError, LoadRefused
from keras_idea.hub.hf.check import (
    RARE,
    TEXTS,
    Checked,
    check_ids,
    check_numbers,
    folds_otherwise,
    texts_of,
)
from keras_idea.hub.hf.config import (
    LANGUAGE_MODELS,
    backbone_arguments,
    is_causal,
    staged_config,
)
from keras_idea.hub.hf.embedder import embedder_options
from keras_idea.hub.hf.stage import Stage, staged
from keras_idea.hub.hf.tokenizer import (
    OWN_CUT,
    cut_as,
    cuts_words,
    ids_of,
    is_sentencepiece,
    kind_of,
    mend_tokenizer_config,
    plain_backend,
    settle_word_pieces,
)
from keras_idea.hub.hf.weights import mend_weights
from keras_idea.hub.rebuild import patch_get_config
from keras_idea.keras_private.hub_tokenizers import converted_as
from keras_idea.keras_private.variables import without_values
from keras_idea.validation import require

_NO_TOKENIZER = "It has no tokenizer."
_NO_TASK = (
    "KerasHub has no task of this encoder, so it is a backbone without its tokenizer."
)
_OTHERS = (
    "Of some texts KerasHub makes other token ids than transformers: {difference}."
)
_SPECIAL = (
    "transformers reads {tokens} in a text as special tokens; KerasHub encodes them as "
    "plain text, or encodes the text after them differently."
)

_START = (
    "KerasHub's `generate` puts {token} before each prompt, transformers does not. To "
    "leave it out: `lm.preprocessor.build(None)`, then "
    "`lm.preprocessor.packer.start_value = None`."
)

_TEMPLATE = (
    "KerasHub does not keep its chat template: put chat_template.jinja beside what you "
    "export."
)
_CONTEXT = (
    "Its context is {length:,} tokens, which KerasHub does not keep: for a GGUF file, "
    "set it with `--length`."
)


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
        with _as_load_refused(stage):
            backbone: Any = _backbone(stage, "float32", load_weights=True)
            mend_weights(backbone, stage.hf_config, stage.folder)
            patch_get_config(backbone)
            causal = is_causal(stage.config)
            kind = _task_class(type(backbone), causal, stage)
            preprocessor, notes = _preprocessor(stage, kind)
            options, more = ({}, ()) if causal else embedder_options(stage, kind)
            model = _around(kind, backbone, preprocessor, options)
            more += _context(stage, backbone, causal)
            known = _state(stage.source)
            if known not in _AGREED:
                _AGREED[known] = check_numbers(backbone, model, stage, causal)
        checked = _AGREED[known]
        notes = (*stage.notes, *checked.notes, *notes, *more)
        checked = dataclasses.replace(checked, notes=notes)
        policy = keras.dtype_policies.get(dtype or "float32")
        if policy.name == "float32":
            return model, checked
        # Compared in float32, then computed as asked for.
        other = _backbone(stage, policy, load_weights=False)
        for new, old in zip(other.variables, backbone.variables, strict=True):
            new.assign(old.value)
        return _around(kind, other, preprocessor, options), checked


def folder_outline(source: str | os.PathLike, dtype: Any) -> keras.Model:
    """The backbone of a Hugging Face folder, its variables without values."""
    with staged(source) as stage, _as_load_refused(stage), without_values():
        return _backbone(stage, dtype, load_weights=False)


def folder_preprocessor(source: str | os.PathLike) -> Any:
    """The preprocessor of a Hugging Face folder, None if it has no tokenizer."""
    with staged(source) as stage, _as_load_refused(stage):
        with without_values():
            backbone = type(_backbone(stage, "float32", load_weights=False))
        kind = _task_class(backbone, is_causal(stage.config), stage)
        return _preprocessor(stage, kind)[0]


@contextlib.contextmanager
def _as_load_refused(stage: Stage) -> Iterator[None]:
    """Turns what KerasHub or transformers raise into `LoadRefused`."""
    try:
        yield
    except KerasIdeaError:  # which says what to do
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:400]
        raise LoadRefused(
            f"It cannot be converted and compared: {type(error).__name__}: "
            f"{reason} Received: {str(stage.source)!r}, model_type="
            f"{stage.hf_config['model_type']!r}. Give another checkpoint; "
            "docs/families.md lists the families that can be loaded."
        ) from error


def _hub() -> Any:
    return require("keras_hub", "A Hugging Face checkpoint", "hub")


def _backbone(stage: Stage, dtype: Any, load_weights: bool) -> keras.Model:
    arguments = {"load_weights": load_weights, "dtype": dtype}
    arguments |= backbone_arguments(stage.hf_config)
    models = _hub().models
    if _is_llama2(stage):
        # KerasHub converts every Llama to a Llama 3, whose tokenizer is byte-level.
        kind, config = models.LlamaBackbone, staged_config(stage.hf_config)
        made: keras.Model = converted_as(kind, str(stage.folder), config, **arguments)
        return made
    return models.Backbone.from_preset(str(stage.folder), **arguments)


def _is_llama2(stage: Stage) -> bool:
    llama = stage.hf_config["model_type"] == "llama"
    return llama and is_sentencepiece(stage.tokenizer)


def _task_class(backbone: type, causal: bool, stage: Stage) -> Any:
    """The class of the task around a backbone; None: an encoder remains a backbone."""
    models = _hub().models
    if not causal and stage.hf_config["model_type"] in LANGUAGE_MODELS:
        return None
    kind = task_class(models.CausalLM if causal else models.TextEmbedder, backbone)
    if kind is None and causal:
        raise LoadRefused(
            f"KerasHub has no CausalLM of a {backbone.__name__}. Received: "
            f"architectures={stage.config.architectures}. Give another checkpoint."
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
    causal = _hub().models.CausalLM
    alone = len(_tasks(causal, type(task.backbone))) == 1
    return (causal if alone else type(task)).__name__


def _tasks(base: type, backbone: type) -> list[Any]:
    known: Any = filter(inspect.isclass, vars(_hub().models).values())
    kinds = [kind for kind in known if issubclass(kind, base)]
    return [kind for kind in kinds if kind.backbone_cls is backbone]


def _around(
    kind: Any, backbone: keras.Model, preprocessor: Any, arguments: dict[str, Any]
) -> keras.Model:
    if kind is None:
        return backbone
    return kind(backbone=backbone, preprocessor=preprocessor, **arguments)


def _preprocessor(stage: Stage, kind: Any) -> tuple[Any, tuple[str, ...]]:
    """The preprocessor whose ids are transformers' own, and notes about it."""
    theirs = stage.tokenizer
    if theirs is None:
        return None, (_NO_TOKENIZER,)
    if kind is None:
        return None, (_NO_TASK,)
    made = _converted_preprocessor(stage, kind)
    tokenizer, causal = made.tokenizer, is_causal(stage.config)
    mend_tokenizer_config(tokenizer)

    def encode(text: str) -> list[int]:
        return theirs.encode(text, add_special_tokens=False)

    def own(text: str) -> list[int]:
        return ids_of(tokenizer, text)

    notes: list[str] = []
    if getattr(tokenizer, "merges", None) is not None and cuts_words(theirs):
        cut_as(tokenizer, plain_backend(theirs))
        notes.append(OWN_CUT)
    texts, others = texts_of(theirs), []
    if is_sentencepiece(theirs):
        # SentencePiece puts its space before each text, transformers before some.
        others = [text for text in texts if text[:1].isspace()]
        texts = [text for text in texts if text not in others]
    elif not causal:
        settle_word_pieces(tokenizer, theirs)
        others = [text for text in texts if folds_otherwise(text)]
        texts = [text for text in texts if text not in others]
        others += RARE
    difference = check_ids(own, encode, others)
    notes += [_OTHERS.format(difference=difference)] if difference else []
    difference = check_ids(own, encode, texts)
    if not causal:
        difference = difference or _packed_difference(made, theirs)
    if difference:
        raise LoadRefused(
            f"KerasHub's {type(tokenizer).__name__} makes other token ids than "
            f"transformers: {difference}. Received: {str(stage.source)!r}. Give a "
            "checkpoint with another tokenizer."
        )
    spelt = [
        token
        for token in dict.fromkeys(theirs.all_special_tokens)
        if own(f"a {token}b") != encode(f"a {token}b")
    ]
    if spelt:
        notes.append(_SPECIAL.format(tokens=", ".join(spelt)))
    if causal:
        made.add_start_token = _begins_with_start(theirs)
        if not made.add_start_token and first_of_prompt(made, "x") != encode("x")[0]:
            notes.append(_START.format(token=made.tokenizer.start_token))
        if theirs.chat_template:
            notes.append(_TEMPLATE)
    return made, tuple(notes)


def first_of_prompt(preprocessor: Any, text: str) -> int:
    """The first token id that KerasHub's `generate` gives the model of a text."""
    # By name: the preprocessors of Gemma 3 and other families take it no other way.
    made = preprocessor.generate_preprocess(text, sequence_length=16)
    return int(np.asarray(made["token_ids"])[0])


def _context(stage: Stage, backbone: keras.Model, causal: bool) -> tuple[str, ...]:
    """A note about the most positions, if the backbone does not have them."""
    length = stage.hf_config.get("max_position_embeddings")
    if not causal or not length or getattr(backbone, "max_sequence_length", None):
        return ()
    return (_CONTEXT.format(length=length),)


def _converted_preprocessor(stage: Stage, kind: Any) -> Any:
    if _is_llama2(stage):
        models = _hub().models
        tokenizer = models.LlamaTokenizer(str(stage.folder / "tokenizer.model"))
        return models.LlamaCausalLMPreprocessor(tokenizer)
    try:
        return kind.preprocessor_cls.from_preset(str(stage.folder))
    except Exception as error:  # a file that another kind of tokenizer has, or a token
        needed = kind.preprocessor_cls.tokenizer_cls.__name__
        reason = " ".join(str(error).replace(str(stage.folder), "it").split())
        raise LoadRefused(
            f"KerasHub's {needed} cannot be made of this checkpoint's tokenizer, which "
            f"is {kind_of(stage.tokenizer)} ({reason[:200]}). "
            f"Received: {str(stage.source)!r}, model_type="
            f"{stage.hf_config['model_type']!r}. Give a checkpoint with another "
            "tokenizer."
        ) from error


def _packed_difference(preprocessor: Any, theirs: Any) -> str:
    """Where an encoder's ids, special tokens included, differ from transformers'."""

    def packed(text: str) -> list[int]:
        features = {k: np.asarray(v) for k, v in preprocessor(text).items()}
        mask = features["padding_mask"].astype(bool)
        ids: list[int] = features["token_ids"][mask].tolist()
        return ids

    return check_ids(packed, theirs.encode, TEXTS[:1])


def _begins_with_start(tokenizer: Any) -> bool:
    """Whether transformers puts the start token before a text."""
    bare = tokenizer.encode("x", add_special_tokens=False)
    return tokenizer.encode("x")[: -len(bare) or None][:1] == [tokenizer.bos_token_id]
