"""Finding what can be pruned in a model, and saying why the rest cannot."""
