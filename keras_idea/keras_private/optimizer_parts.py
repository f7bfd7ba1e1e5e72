"""An optimizer and those around it: loss scaling, several in one.

`LossScaleOptimizer.inner_optimizer` and `MultiOptimizer.optimizers` are public; it is
here because its neighbours need it.
"""

import keras


def innermost(optimizer: keras.Optimizer) -> keras.Optimizer:
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def parts(optimizer: keras.Optimizer) -> list[keras.Optimizer]:
    """The optimizer and those it wraps, outermost first."""
    found = [optimizer]
    inner = getattr(optimizer, "inner_optimizer", None)
    wrapped = getattr(optimizer, "optimizers", [])
    for part in [inner] if inner is not None else wrapped:
        found += parts(part)
    return found
