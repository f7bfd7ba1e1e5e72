"""Text to train on, in three rooms: read, tokenized once, and conversations."""
