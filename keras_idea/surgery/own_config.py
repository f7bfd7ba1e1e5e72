"""Layers of the user's own classes whose config does not follow the width."""

import contextlib
import random
import warnings
from collections.abc import Iterator

import keras

from keras_idea.hub.families import is_backbone, is_task
from keras_idea.keras_private.layer_walk import sublayers, walk
from keras_idea.keras_private.models import Functional
from keras_idea.layers.plain_ffns import PlainFFN
from keras_idea.layers.prunable import Prunable

_FFNS = (Prunable, PlainFFN)


def warn_of_stale_configs(model: keras.layers.Layer) -> None:
    """Warns of layers that would come back from a file with FFNs of another width.

    A block that makes its FFN of a number in its own config, such as `Block(32)`, says
    32 for ever; the file of a narrowed one holds fewer neurons and cannot be loaded.
    Each is made again of its config, and the widths are compared.

    Args:
        model: a Keras model or layer that was narrowed.
    """
    for layer in _of_own_classes(model):
        there, made = _kinds(layer), _kinds(_made_again(layer))
        if len(made) != len(there):
            continue
        for new, old in zip(there, made, strict=True):
            if new != old:
                warnings.warn(
                    f"{type(layer).__name__} '{layer.name}' holds a {new}, and its "
                    f"config makes a {old}: a file of it, saved whole (.keras), cannot "
                    "be loaded. Let its config follow: take the FFN as an argument and "
                    "serialize it in `get_config`, as keras_idea.models.DecoderBlock "
                    "does.",
                    stacklevel=2,
                )
                break


def _of_own_classes(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """The outermost layers with FFNs that are made of a config of their own."""
    if isinstance(layer, _FFNS) or is_backbone(layer) or is_task(layer):
        return
    if isinstance(layer, (Functional, keras.Sequential)):
        for sublayer in sublayers(layer):
            yield from _of_own_classes(sublayer)
    elif _kinds(layer):
        yield layer


def _kinds(layer: keras.layers.Layer | None) -> list[str]:
    """Such as "GatedFFN(32)", of each FFN in a layer."""
    found = [] if layer is None else walk(layer)
    return [
        f"{type(part).__name__}({part.hidden_dim})"
        for part in found
        if isinstance(part, _FFNS)
    ]


def _made_again(layer: keras.layers.Layer) -> keras.layers.Layer | None:
    """Of the same config; None where that fails, of which Keras tells when it saves."""
    state = random.getstate()  # Keras draws the seeds of Dropout and such from it
    try:
        with contextlib.suppress(Exception):
            return type(layer).from_config(layer.get_config())
        return None
    finally:
        random.setstate(state)
