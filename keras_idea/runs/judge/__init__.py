"""A saved model judged: perplexity of a text, and benchmarks."""
