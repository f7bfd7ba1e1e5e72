"""Keras callbacks."""

from keras_idea.callbacks.idea_prune import IdeaPruneCallback
from keras_idea.callbacks.monitor import Monitor

__all__ = ["IdeaPruneCallback", "Monitor"]
