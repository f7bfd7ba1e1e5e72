"""A model's weights as the reference has them."""

import keras_idea as ki
from tests.support.helpers import (
    to_numpy,
)


def kernels(model):
    """The model's weights in the reference's order."""
    ffns = [[to_numpy(k) for k in ffn.kernels] for ffn in ki.find_ffns(model)]
    return [*ffns, to_numpy(model.get_layer("head").kernel)]


def living(ffn, mask):
    """Kernels with the rows of pruned neurons zeroed, as the paper stores them."""
    *entrances, down = ffn
    return [*(kernel * mask for kernel in entrances), down * mask[:, None]]
