"""When does pruning pay? Tokens a parameter against enlargement, beside scratch."""
