"""Which variable of a narrow copy takes over which one of the wide model."""

from typing import TypeAlias

import keras
import numpy as np

from keras_idea.surgery.find import FFN

#: An old variable, the new one, the neurons kept and their axis (None: no cut).
Pair: TypeAlias = tuple[keras.Variable, keras.Variable, np.ndarray | None, int | None]


def paired_variables(
    model: keras.layers.Layer, narrow: keras.layers.Layer, ffns: list[FFN]
) -> list[Pair]:
    """Pairs each variable of a model with the one that takes its value.

    Args:
        model: a built Keras model or layer.
        narrow: its copy, whose FFNs are plain and as wide as the model's are alive.
        ffns: list of `FFN` handles, all of the model.

    Returns:
        List of (old variable, new variable, kept, axis), in the copy's order: the
        indices of the neurons that stay, and their axis; None twice where nothing is
        cut.

    Raises:
        ValueError: if the two have other variables than that.
    """
    cuts: dict[int, tuple[np.ndarray, int]] = {}
    for ffn in ffns:
        kept = ffn.kept_neurons()
        cuts |= {id(variable): (kept, axis) for variable, axis in ffn.cuts()}
    states = {id(v) for ffn in ffns for v in ffn.state.variables}
    old = [variable for variable in model.variables if id(variable) not in states]
    new = narrow.variables
    pairs = [
        (a, b, *cuts.get(id(a), (None, None))) for a, b in zip(old, new, strict=False)
    ]
    for a, b, kept, axis in pairs:
        shape = list(a.shape)
        if axis is not None:
            shape[axis] = len(kept)
        if (shape, a.name) != (list(b.shape), b.name):
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
