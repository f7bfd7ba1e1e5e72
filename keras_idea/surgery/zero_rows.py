"""The weights of dead neurons, made zeros."""

from keras import ops

from keras_idea.surgery.find import FFN
from keras_idea.surgery.row_ops import scale
from keras_idea.typing import Tensor


def zero_rows(ffn: FFN, mask: Tensor) -> None:
    """Zeroes the weights of dead neurons, in all three matrices and two biases."""
    for variable, axis in ffn.cuts():
        # Indexed by the tensors' own operators: a call of `keras.ops`
        # takes longer than the arithmetic where nothing is compiled.
        places = (slice(None), *[None] * (len(variable.shape) - axis - 1))
        keep = mask if variable.dtype == "float32" else ops.cast(mask, variable.dtype)
        scale(variable, keep[places])
