"""One pruning run: who owns its state, and what it does after which step."""
