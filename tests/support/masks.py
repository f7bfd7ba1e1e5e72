"""Neurons that a test prunes itself."""

import keras
import numpy as np

from keras_idea._step.row_ops import zero_rows


def prune_by_hand(ffn, mask):
    """Leaves active the neurons of an FFN where a mask is other than zero.

    Args:
        ffn: an `FFN` handle, at rest.
        mask: array `(F,)`, or of experts `(E, F)`.
    """
    mask = np.asarray(mask, "float32")
    zero_rows(ffn.cuts(), keras.ops.convert_to_tensor(mask))
