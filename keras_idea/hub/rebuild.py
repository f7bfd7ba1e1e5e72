"""A KerasHub model made anew at another width."""

import functools
import itertools
import warnings
from typing import Any

import keras

from keras_idea.hub.ffn import converted_ffns
from keras_idea.keras_private.variables import without_values


def rebuild_backbone(backbone: keras.Model) -> keras.Model:
    """A backbone of the same class and config, as wide as the old one is alive.

    Args:
        backbone: a KerasHub backbone, converted or not.

    Returns:
        A new backbone with values of its own.

    Raises:
        ValueError: if its FFNs do not all have one width.
    """
    mend_get_config(backbone)
    config = _plain(type(backbone).get_config(backbone))
    widths: dict[str, dict[str, int]] = {}
    for ffn in converted_ffns(backbone):
        width = ffn.state.kept_neurons().shape[-1] * ffn.layout.per_neuron
        widths.setdefault(ffn.width_argument, {})[ffn.owner.path] = width
    for argument, of_layers in widths.items():
        if len(set(of_layers.values())) > 1:
            raise ValueError(
                f"The config of {type(backbone).__name__} holds one {argument}, but "
                f"its FFNs now need {of_layers}. Prune every FFN to the same number "
                "of neurons."
            )
        config[argument] = next(iter(of_layers.values()))
    return type(backbone).from_config(config)


def check_rebuildable(backbone: keras.Model) -> None:
    """Makes a backbone again from its config, without values, as `compact` will.

    Args:
        backbone: a KerasHub backbone, not converted.

    Raises:
        ValueError: if its class cannot, or if the new one has other variables.
    """
    cure = (
        "so that compact() could not bring out a narrow one. Prune a model that its "
        "config describes fully."
    )
    name = f"{type(backbone).__name__} '{backbone.name}'"
    try:
        with without_values():
            copy = rebuild_backbone(backbone)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be made again from its config, {cure} Its class said: "
            f"{error}"
        ) from error
    pairs = itertools.zip_longest(backbone.variables, copy.variables)
    for old, new in pairs:
        kinds = [
            None if v is None else (v.name, tuple(v.shape), v.dtype) for v in (old, new)
        ]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"{name}, made again from its config, has other variables "
                f"({kinds[1]} where it has {kinds[0]}), {cure}"
            )


def rebuild_task(task: keras.Model, backbone: keras.Model) -> keras.Model:
    """A task of the same class around another backbone, untrained.

    Args:
        task: a KerasHub task.
        backbone: the backbone of the new one.

    Returns:
        A new task; the preprocessor, which has no weights, is the same object.
    """
    with warnings.catch_warnings():
        # The copy is narrow: nothing of the conversion is lost in it.
        warnings.simplefilter("ignore", StockCopyWarning)
        config = {**task.get_config(), "backbone": backbone}
    # Not from its config, which leaves out the tokenizer's vocabulary.
    config["preprocessor"] = task.preprocessor
    return type(task).from_config(config)


class StockCopyWarning(UserWarning):
    """Told when a converted model is saved or copied as a stock one."""


def tell_when_saved(backbone: keras.Model) -> None:
    """Lets a converted backbone say that what is saved of it is a stock one.

    Files, copies and pickles of a model are made of its config, in which nothing of a
    conversion can be.

    Args:
        backbone: a KerasHub backbone that was just converted.
    """
    backbone.get_config = functools.partial(_told_config, backbone)


def tell_no_more(backbone: keras.Model) -> None:
    """Undoes `tell_when_saved`."""
    del backbone.get_config


def _told_config(backbone: keras.Model) -> dict[str, Any]:
    ffns = converted_ffns(backbone)
    dead = sum(ffn.hidden_dim - ffn.state.kept_neurons().shape[-1] for ffn in ffns)
    if dead or any(ffn.state.live or ffn.state.probe for ffn in ffns):
        warnings.warn(
            f"What is saved or copied of {type(backbone).__name__} '{backbone.name}' "
            f"is a stock model that answers as this one does: {dead} masked neurons "
            "are zeros in it; the scores, the masks and the pruning under way are not "
            "in it. Use keras_idea.Checkpoint to go on later, keras_idea.compact for "
            "a narrow model.",
            StockCopyWarning,
            stacklevel=3,
        )
    return type(backbone).get_config(backbone)


def mend_get_config(backbone: keras.Model) -> None:
    """Mends, once a process, a config of KerasHub that forgets an argument.

    `LlamaBackbone.get_config` (0.32) leaves out `tie_word_embeddings`, so that a
    tied model could not be made again, nor its preset be loaded. The class is
    mended, not the object, because `save_to_preset` of the stock model asks it.

    Args:
        backbone: a KerasHub backbone.
    """
    name = "tie_word_embeddings"
    if not getattr(backbone, name, False):
        return
    if name in type(backbone).get_config(backbone):
        return
    owner: Any
    owner = next(c for c in type(backbone).__mro__ if "get_config" in vars(c))
    forgetful = owner.get_config

    @functools.wraps(forgetful)
    def get_config(self: keras.Model) -> dict[str, Any]:
        return {**forgetful(self), name: getattr(self, name)}

    owner.get_config = get_config


def _plain(config: Any) -> Any:
    """A copy whose lists and dicts are Python's own.

    Those of a Keras model are tracked, and would tie the new model to the old.
    """
    if isinstance(config, dict):
        return {key: _plain(value) for key, value in config.items()}
    if isinstance(config, list):
        return [_plain(value) for value in config]
    return config
