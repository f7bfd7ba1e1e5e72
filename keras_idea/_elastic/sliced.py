"""Slices a stock narrow model out of a model, without training."""

from typing import TypeVar

import keras
import numpy as np

from keras_idea._elastic.reading import FirstNeurons
from keras_idea._elastic.widths import Width, check_width, neurons_at
from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import FFN, find_ffns
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.layers import is_built
from keras_idea._surgery.compact import narrowed
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain

Model = TypeVar("Model", bound=keras.layers.Layer)


def sliced(model: Model, width: Width) -> Model:
    """Returns a new, narrow model of the first neurons of each FFN.

    Use it for each width that an `ElasticCallback` has trained. The narrow model is a
    stock model of the same classes, and shares nothing with `model`. It equals
    `ki.compact` of the model with all other neurons set to zero.

    If the model is compiled, the new model is compiled too, and the optimizer's state
    is sliced in the same way. A KerasHub model is checked on a probe batch, and a model
    with code of your own on an example.

    Args:
        model: keras.Model. A built functional, Sequential or subclassed Keras model, or
            a KerasHub task or backbone. It is not changed.
        width: int >= 1, float in (0, 1) or dict. Neurons of each FFN; the share of them
            (rounded to the nearest, at least 1); or either by the names that
            `ki.find_ffns` shows. FFNs without a name keep all.

    Returns:
        A new model.

    Raises:
        ValueError: If `width` is out of range, if the model has no FFN whose neurons
            are found, or if `ki.compact` raises one.

    Example:
    >>> narrow = ki.sliced(model, 0.5)
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(narrow)]
    [4, 4]
    """
    width = check_width("width", width)
    check_plain(model)
    ffns = find_ffns(model)
    if not ffns or not is_built(model) or not all(ffn.built for ffn in ffns):
        raise ArgumentError(
            f"Model '{model.name}' has no FFN whose neurons can be sliced, or is not "
            f"built. {why_nothing(model, NEURONS)}"
        )
    counts = neurons_at("width", width, ffns)
    of = {id(ffn.layer): n for ffn, n in zip(ffns, counts, strict=True)}

    def first(ffn: FFN) -> np.ndarray:
        stay = of[id(ffn.layer)] if ffn.kind == NEURONS else ffn.hidden_dim
        return np.broadcast_to(np.arange(stay), (*ffn.units_shape[:-1], stay))

    reading = FirstNeurons(model, ffns)
    return narrowed(model, "sliced()", first, reading.at(counts), compiled=True)
