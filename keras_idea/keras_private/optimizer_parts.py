"""An optimizer and those around it: loss scaling, several in one."""


def innermost(optimizer):
    """The optimizer itself, without the loss scaling around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def parts(optimizer):
    """The optimizer and those it wraps, outermost first."""
    found = [optimizer]
    inner = getattr(optimizer, "inner_optimizer", None)
    wrapped = getattr(optimizer, "_inner_optimizers", [])
    for part in [inner] if inner is not None else wrapped:
        found += parts(part)
    return found
