"""A run carried out: prepared, trained, pruned, and what it leaves in its folder."""

from keras_idea.lm.runs.train.training import train

__all__ = ["train"]
