"""The prunable and the plain FFNs."""

from keras_idea.layers.plain_ffns import GatedFFN, PlainFFN, UngatedFFN
from keras_idea.layers.prunable import Prunable
from keras_idea.layers.prunable_ffns import PrunableFFN, PrunableGatedFFN

__all__ = [
    "GatedFFN",
    "PlainFFN",
    "Prunable",
    "PrunableFFN",
    "PrunableGatedFFN",
    "UngatedFFN",
]
