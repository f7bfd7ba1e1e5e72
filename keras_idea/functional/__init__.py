"""The functional core: pure functions of tensors and integers."""

from keras_idea.functional.counts import ffn_flops, ffn_parameters
from keras_idea.functional.importance import (
    ema,
    neuron_importance,
    reduce_rows,
    sensitivity,
)
from keras_idea.functional.masks import take_neurons, top_k_mask

__all__ = [
    "ema",
    "ffn_flops",
    "ffn_parameters",
    "neuron_importance",
    "reduce_rows",
    "sensitivity",
    "take_neurons",
    "top_k_mask",
]
