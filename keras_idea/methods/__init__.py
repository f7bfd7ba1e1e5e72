"""Pruning methods: how the importance of neurons arises.

A method is an object with a `name` and a `width_schedule`; a new one is a file
and a row in `METHODS`.
"""

from keras_idea.methods.sensitivity import Sensitivity

METHODS = {method.name: method for method in (Sensitivity,)}


def get(identifier):
    """The method that a name or an object stands for.

    Args:
        identifier: str, a key of `METHODS`, or a method object.

    Returns:
        A method object.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(identifier, str) and identifier in METHODS:
        return METHODS[identifier]()
    if isinstance(identifier, tuple(METHODS.values())):
        return identifier
    raise ValueError(
        f"`method` must be one of {', '.join(map(repr, METHODS))} or an object of "
        f"`keras_idea.methods`. Received: method={identifier!r}."
    )


__all__ = ["METHODS", "Sensitivity", "get"]
