"""A KerasHub model made again from its config."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_idea._keras.layers import walk
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.kept import keep, kept_of


def rebuild_backbone(
    backbone: keras.Model, overrides: Mapping[str, Any] | None = None
) -> keras.Model:
    """A backbone of the same class, its config but for `overrides`, with new values."""
    patch_get_config(backbone)
    config = with_numbers({**backbone.get_config(), **(overrides or {})}, {})
    made: keras.Model = type(backbone).from_config(config)
    keep(made, kept_of(backbone))
    return made


_MERGE = (
    "Merge it first (save the weights, and load them into a model without LoRA), or "
    "prune before it"
)


def check_plain(model: keras.layers.Layer) -> None:
    """Refuses LoRA and quantization in KerasHub's models: no config has them."""
    ours = [layer for layer in walk(model) if is_task(layer) or is_backbone(layer)]
    layers = [part for layer in ours for part in walk(layer)]
    for attribute, state, cure in (
        ("lora_enabled", "has LoRA enabled", _MERGE),
        ("quantization_mode", "is quantized", "Prune first, then quantize"),
    ):
        for layer in layers:
            if not getattr(layer, attribute, None):
                continue
            mode = getattr(layer, "quantization_mode", None)
            raise ArgumentError(
                f"Layer '{layer.path}' of '{model.name}' {state}"
                f"{f' ({mode})' if mode else ''}, so that no smaller model could be "
                f"made of it from its config. {cure}."
            )


def rebuild_task(
    task: keras.Model, backbone: keras.Model, **arguments: Any
) -> keras.Model:
    """A task of the same class around another backbone, untrained.

    The preprocessor, which has no weights, is the same object.
    """
    config = {**task.get_config(), **arguments, "backbone": backbone}
    # Not from its config, which leaves out the tokenizer's vocabulary.
    config["preprocessor"] = task.preprocessor
    return type(task).from_config(config)


def patch_get_config(backbone: keras.Model) -> None:
    """Mends, once a process, a config of KerasHub that forgets an argument.

    `LlamaBackbone.get_config` (0.32) leaves out `tie_word_embeddings`, so that a tied
    model could not be made again, nor its preset be loaded.
    """
    name = "tie_word_embeddings"
    if getattr(backbone, name, False):
        owner = next(c for c in type(backbone).__mro__ if "get_config" in vars(c))
        add_to_config(owner, lambda self: {name: getattr(self, name)})


def add_to_config(kind: Any, more: Callable[[Any], dict[str, Any]]) -> None:
    """Has the configs of a class also hold what a function of the object returns.

    The class is changed, not the object, because `save_to_preset` asks it; and once.
    """
    forgetful = kind.get_config
    if getattr(forgetful, "holds_more", False):
        return

    @functools.wraps(forgetful)
    def get_config(self: Any) -> dict[str, Any]:
        return {**more(self), **forgetful(self)}

    mended: Any = get_config
    mended.holds_more = True
    kind.get_config = mended


def with_numbers(config: Any, changes: Mapping[tuple, int], path: tuple = ()) -> Any:
    """A copy of a config, with other numbers at some places in it.

    A place is a tuple of keys and indices. Lists and dicts are Python's own: those of
    a Keras model are tracked, and would tie the new model to the old.
    """
    if path in changes:
        return changes[path]
    if isinstance(config, dict):
        return {k: with_numbers(v, changes, (*path, k)) for k, v in config.items()}
    if isinstance(config, list):
        return [with_numbers(v, changes, (*path, i)) for i, v in enumerate(config)]
    if type(config) is tuple:
        return tuple(with_numbers(list(config), changes, path))
    return config
