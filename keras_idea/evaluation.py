"""Judging language models: perplexity, and the field's own benchmarks."""

from keras_idea.lm.evaluation.perplexity import Perplexity, perplexity
from keras_idea.lm.evaluation.scorer import TokenScorer

__all__ = ["Perplexity", "TokenScorer", "perplexity"]
