"""The FFN layers: plain ones, and those with a pruning state on view."""

from keras_idea._layers.ffn import (
    GatedFFN,
    Prunable,
    PrunableFFN,
    PrunableGatedFFN,
    UngatedFFN,
)

__all__ = ["GatedFFN", "Prunable", "PrunableFFN", "PrunableGatedFFN", "UngatedFFN"]
