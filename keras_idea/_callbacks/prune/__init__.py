"""One pruning run in `fit`: its state, and what it does after which step.

What is computed inside a step is in `keras_idea._step`, the narrowing of variables in
`keras_idea._surgery`.
"""
