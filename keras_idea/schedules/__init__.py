"""Schedules of the learning rate and of the width."""

from keras_idea.functional.width import CubicWidth
from keras_idea.schedules.learning_rate import CosineDecay, WarmupStableDecay
from keras_idea.schedules.staged import StagedSchedule

__all__ = ["CosineDecay", "CubicWidth", "StagedSchedule", "WarmupStableDecay"]
