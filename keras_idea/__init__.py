"""Pretrain wide, prune while training, recover: in one `model.fit`."""

from keras_idea import functional, methods
from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.schedules import (
    CosineDecay,
    CubicWidth,
    StagedSchedule,
    WarmupStableDecay,
)
from keras_idea.surgery import compact, find_ffns

__version__ = "0.1.0"

__all__ = [
    "CosineDecay",
    "CubicWidth",
    "GatedFFN",
    "IdeaPruneCallback",
    "PrunableGatedFFN",
    "StagedSchedule",
    "WarmupStableDecay",
    "compact",
    "find_ffns",
    "functional",
    "methods",
]
