"""What is known of the neurons of any FFN by its weights."""

import functools
from collections.abc import Sequence

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.layers.cut import Cut
from keras_idea.typing import Tensor
from keras_idea.validation import plural


def cuts_of(
    kernels: Sequence[keras.Variable], biases: Sequence[keras.Variable | None]
) -> list[Cut]:
    """How the neurons lie in the weights of an FFN, the kernels first; down is last."""
    *entrances, down = kernels
    inner = [bias for bias in biases[:-1] if bias is not None]
    return [
        *(Cut(kernel, 1) for kernel in entrances),
        Cut(down, 0),
        *(Cut(bias, 0, is_bias=True) for bias in inner),
    ]


def check_loaded_width(name: str, hidden_dim: int, found: int) -> None:
    """Refuses a file of another width, in words that say what to use."""
    if hidden_dim != found:
        raise ArgumentError(
            f"The file holds {plural(found, 'neuron')} of '{name}', which has "
            f"{hidden_dim}: it was saved before or after the model became narrower. "
            "Load the model whole (keras.saving.load_model), or restore a run by "
            "keras_idea.Checkpoint(folder).restore(model), which narrows the model; or "
            f"make the model with {plural(found, 'neuron')}. If this is a whole model: "
            "a block of yours makes the FFN with the width of its own config, which "
            "must follow (docs/good_to_know.md)."
        )


def used_neurons(cuts: Sequence[Cut]) -> Tensor:
    """The mask, `(F,)` or `(E, F)`, of the neurons with a weight other than zero.

    Where all are zero, as in an FFN that begins with zeros, each counts as used.
    """
    used = functools.reduce(ops.logical_or, (cut.used() for cut in cuts))
    unknown = ops.logical_not(ops.any(used, axis=-1, keepdims=True))
    return ops.cast(ops.logical_or(used, unknown), "float32")
