"""The dependency graph of a model: which entries of which variables belong together."""
