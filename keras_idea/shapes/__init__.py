"""Models of another shape, made in one step from a trained one."""

from keras_idea.shapes.candidate import Candidate
from keras_idea.shapes.search import search
from keras_idea.shapes.shrink import shrink

__all__ = ["Candidate", "search", "shrink"]
