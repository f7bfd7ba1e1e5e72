"""What a narrow copy knows of the model that it is of."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_idea.finding.find import find_groups
from keras_idea.finding.pairing import Pair


def hand_on_first_widths(
    model: keras.layers.Layer, narrow: keras.layers.Layer, pairs: Sequence[Pair]
) -> None:
    """Has a copy's FFNs know how wide they were at first, and which neurons they have.

    As those of a model that was narrowed in place do: a fraction to keep counts from
    that width. `pairs` are the variables of the two.
    """
    copies = {id(old): id(new) for old, new, _ in pairs}
    ours = {id(ffn.kernels[0]): ffn for ffn in find_groups(narrow)}
    for ffn in find_groups(model):
        copy = ours.get(copies.get(id(ffn.kernels[0]), 0))
        state, full_dim, index = ffn.held_state, ffn.hidden_dim, ffn.kept_neurons()
        if state is not None:  # looking makes none
            full_dim = state.full_dim or full_dim
            index = np.take_along_axis(ffn.original_indices, index, axis=-1)
        if copy is not None and copy.hidden_dim < full_dim:
            copy.state.full_dim = full_dim
            copy.state.original_index.assign(index.astype("float32"))
