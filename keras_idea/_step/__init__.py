"""What is done at each optimizer step of a pruning run: scores, masks, zeros."""
