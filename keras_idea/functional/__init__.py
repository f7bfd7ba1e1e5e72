"""The functional core: pure functions of tensors and integers."""

from keras_idea.functional.activation import (
    activation_importance,
    activation_sums,
    importance_of_sums,
)
from keras_idea.functional.counter_uniform import counter_uniform
from keras_idea.functional.counts import ffn_flops, ffn_parameters
from keras_idea.functional.hard_concrete import (
    hard_concrete_ascent,
    hard_concrete_keep,
    hard_concrete_lagrangian,
    hard_concrete_lagrangian_slope,
    hard_concrete_mask,
    hard_concrete_noise,
    hard_concrete_sample,
    hard_concrete_slope,
    hard_concrete_sparsity,
)
from keras_idea.functional.importance import (
    ema,
    neuron_importance,
    reduce_rows,
    sensitivity,
)
from keras_idea.functional.masks import take_neurons, top_k_mask

__all__ = [
    "activation_importance",
    "activation_sums",
    "counter_uniform",
    "ema",
    "ffn_flops",
    "ffn_parameters",
    "hard_concrete_ascent",
    "hard_concrete_keep",
    "hard_concrete_lagrangian",
    "hard_concrete_lagrangian_slope",
    "hard_concrete_mask",
    "hard_concrete_noise",
    "hard_concrete_sample",
    "hard_concrete_slope",
    "hard_concrete_sparsity",
    "importance_of_sums",
    "neuron_importance",
    "reduce_rows",
    "sensitivity",
    "take_neurons",
    "top_k_mask",
]
