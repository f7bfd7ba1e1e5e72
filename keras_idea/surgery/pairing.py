"""Which variable of a narrow copy takes over which one of the wide model."""

from typing import TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.layers.cut import Cut
from keras_idea.surgery.find import FFN
from keras_idea.typing import Tensor

#: The neurons that stay, and how they lie in a variable.
Kept: TypeAlias = tuple[np.ndarray, Cut]
#: An old variable, the new one, what stays of it (None: all).
Pair: TypeAlias = tuple[keras.Variable, keras.Variable, Kept | None]


def paired_variables(
    model: keras.layers.Layer, narrow: keras.layers.Layer, ffns: list[FFN]
) -> list[Pair]:
    """Pairs each variable of a model with the one that takes its value.

    Args:
        model: a built Keras model or layer.
        narrow: its copy, whose FFNs are plain and as wide as the model's are alive.
        ffns: list of `FFN` handles, all of the model.

    Returns:
        List of `Pair`, in the copy's order.

    Raises:
        ValueError: if the two have other variables than that.
    """
    kept: dict[int, Kept] = {}
    for ffn in ffns:
        alive = ffn.kept_neurons()
        kept |= {id(cut.variable): (alive, cut) for cut in ffn.cuts()}
    states = {id(v) for ffn in ffns for v in ffn.state.variables}
    old = [variable for variable in model.variables if id(variable) not in states]
    new = narrow.variables
    pairs = [(a, b, kept.get(id(a))) for a, b in zip(old, new, strict=False)]
    for a, b, stays in pairs:
        shape = tuple(a.shape) if stays is None else stays[1].shape(stays[0].shape[-1])
        if (shape, a.name) != (tuple(b.shape), b.name):
            break
    else:
        if len(old) == len(new):
            return pairs
    raise ValueError(
        f"The copy of model '{model.name}' has other variables than the model: "
        f"{len(new)} against {len(old)}. compact() finds FFNs held as attributes, or "
        "in lists, tuples and dicts, since the constructor, of layers that are made "
        "again from their config; hold them so."
    )


def cut_to(variable: keras.Variable, stays: Kept | None) -> Tensor:
    """What stays of a variable's value; always a copy."""
    if stays is None:
        # On jax two variables that share an array cannot both be donated to a step.
        return ops.copy(variable.value)
    kept, cut = stays
    return cut.take(kept)
