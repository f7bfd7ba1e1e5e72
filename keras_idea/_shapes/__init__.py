"""Smaller models, made in one step from trained ones."""

from keras_idea._shapes.shrink import shrink

__all__ = ["shrink"]
