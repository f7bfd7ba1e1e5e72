"""Language models judged: perplexity, and the field's own benchmarks."""
