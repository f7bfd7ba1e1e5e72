"""Keras callbacks."""

from keras_idea.callbacks.idea_prune import IdeaPruneCallback

__all__ = ["IdeaPruneCallback"]
