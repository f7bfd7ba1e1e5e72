"""Smaller models, made in one step from trained ones."""

from keras_idea.shapes.shrink import shrink

__all__ = ["shrink"]
