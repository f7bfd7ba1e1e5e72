"""Keras callbacks."""

from keras_idea.callbacks.checkpoint import Checkpoint
from keras_idea.callbacks.checkpoint_files import CheckpointError
from keras_idea.callbacks.idea_prune import IdeaPruneCallback
from keras_idea.callbacks.monitor import Monitor

__all__ = ["Checkpoint", "CheckpointError", "IdeaPruneCallback", "Monitor"]
