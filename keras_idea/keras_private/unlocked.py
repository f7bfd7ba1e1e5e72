"""Changing what a built layer holds."""


def unlocked(layer, change, *arguments):
    """Calls `change(layer, *arguments)` where Keras would refuse new state.

    Keras locks the tracker of a layer once it is built.

    Args:
        layer: a Keras layer, built or not.
        change: function that sets, replaces or deletes something of it.
        *arguments: the function's further arguments.
    """
    locked = layer._tracker.locked
    layer._tracker.unlock()
    try:
        change(layer, *arguments)
    finally:
        if locked:
            layer._tracker.lock()
