"""Tokens: cached, packed into windows, and given to `fit` in batches."""
