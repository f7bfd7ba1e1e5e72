"""Keras callbacks."""

from keras_idea.callbacks.idea_prune import IdeaPruneCallback
from keras_idea.checkpoints.checkpoint import Checkpoint
from keras_idea.errors import CheckpointError
from keras_idea.monitor.monitor import Monitor

__all__ = ["Checkpoint", "CheckpointError", "IdeaPruneCallback", "Monitor"]
