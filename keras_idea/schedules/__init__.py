"""Schedules of the learning rate and of the width."""

from keras_idea.schedules.learning_rate import (
    CosineDecay,
    StagedSchedule,
    WarmupStableDecay,
)
from keras_idea.schedules.width import CubicWidth

__all__ = ["CosineDecay", "CubicWidth", "StagedSchedule", "WarmupStableDecay"]
