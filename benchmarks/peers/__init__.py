"""Other pruning libraries and this one at one task: `python -m benchmarks.peers`."""
