"""Schedules of the learning rate and of the width."""

from keras_idea.functional.width import CubicWidth, WidthSchedule
from keras_idea.schedules.learning_rate import (
    CosineDecay,
    StagedSchedule,
    WarmupStableDecay,
)

__all__ = [
    "CosineDecay",
    "CubicWidth",
    "StagedSchedule",
    "WarmupStableDecay",
    "WidthSchedule",
]
