"""Evaluates language models: perplexity and bits per byte of a text."""

from keras_idea._lm.evaluation.perplexity import Perplexity, TokenScorer, perplexity

__all__ = ["Perplexity", "TokenScorer", "perplexity"]
