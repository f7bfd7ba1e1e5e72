"""The models of a run: built, compiled, and their costs from shapes alone."""
