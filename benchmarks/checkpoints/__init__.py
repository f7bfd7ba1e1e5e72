"""Released checkpoints made smaller: untrained, and recovered on real text."""
