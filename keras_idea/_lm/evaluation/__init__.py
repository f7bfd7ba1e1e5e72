"""Evaluates language models: perplexity and bits per byte."""
