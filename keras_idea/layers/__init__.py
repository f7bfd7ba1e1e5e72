"""The prunable and the plain gated FFN."""

from keras_idea.layers.gated_ffn import GatedFFN
from keras_idea.layers.prunable_gated_ffn import PrunableGatedFFN

__all__ = ["GatedFFN", "PrunableGatedFFN"]
