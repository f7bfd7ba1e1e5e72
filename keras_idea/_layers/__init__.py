"""The FFN layers: plain ones, and those with a pruning state on view."""

from keras_idea._layers.ffn import (
    FFNLayer,
    GatedFFN,
    Prunable,
    PrunableFFN,
    PrunableGatedFFN,
    UngatedFFN,
)

__all__ = [
    "FFNLayer",
    "GatedFFN",
    "Prunable",
    "PrunableFFN",
    "PrunableGatedFFN",
    "UngatedFFN",
]
