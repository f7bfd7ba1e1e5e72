"""Judging language models: perplexity, and the field's own benchmarks."""

from keras_idea.evaluation.perplexity import Perplexity, perplexity
from keras_idea.evaluation.scorer import TokenScorer

__all__ = ["Perplexity", "TokenScorer", "perplexity"]
