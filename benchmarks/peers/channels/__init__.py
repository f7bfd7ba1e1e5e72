"""Channels of two small networks, pruned by this library and by others, in one run."""
