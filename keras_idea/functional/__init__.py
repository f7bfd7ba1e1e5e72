"""The functional core: pure functions of tensors and integers."""

from keras_idea.functional.importance import ema, neuron_importance, sensitivity
from keras_idea.functional.masks import take_neurons, top_k_mask

__all__ = ["ema", "neuron_importance", "sensitivity", "take_neurons", "top_k_mask"]
