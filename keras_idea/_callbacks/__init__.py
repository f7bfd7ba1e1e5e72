"""Keras callbacks."""

from keras_idea._callbacks.checkpoint import Checkpoint
from keras_idea._callbacks.monitor import Monitor
from keras_idea._callbacks.prune import IdeaPruneCallback
from keras_idea.errors import CheckpointError

__all__ = ["Checkpoint", "CheckpointError", "IdeaPruneCallback", "Monitor"]
