"""Keras callbacks."""

from keras_idea.callbacks.checkpoint.checkpoint import Checkpoint
from keras_idea.callbacks.monitor import Monitor
from keras_idea.callbacks.prune.idea_prune import IdeaPruneCallback
from keras_idea.errors import CheckpointError

__all__ = ["Checkpoint", "CheckpointError", "IdeaPruneCallback", "Monitor"]
