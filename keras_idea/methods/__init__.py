"""Pruning methods: each decides which neurons stay.

A method is an object of a subclass of `Method`. A new one of this package is a class
and a row in `METHODS`.
"""

from keras_idea._groups.state import Scoring
from keras_idea._validation import did_you_mean
from keras_idea.errors import ArgumentError
from keras_idea.methods.activation import Activation
from keras_idea.methods.calibration import Samples
from keras_idea.methods.learned_mask import LearnedMask
from keras_idea.methods.method import Method
from keras_idea.methods.simple import Magnitude, Random, Sensitivity

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (Sensitivity, Random, Activation, LearnedMask, Magnitude)
}


def get(identifier: str | Method) -> Method:
    """Returns the method for a name or an object.

    Args:
        identifier: str or `Method`. A key of `METHODS`, or a method object.

    Returns:
        A method object.

    Raises:
        ValueError: For anything else.
    """
    if isinstance(identifier, str) and identifier in METHODS:
        return METHODS[identifier]()
    if isinstance(identifier, Method):
        return identifier
    raise ArgumentError(
        f"`method` must be one of {', '.join(map(repr, METHODS))} or an object of "
        f"`keras_idea.methods`. Received: method={identifier!r}."
        f"{did_you_mean(identifier, METHODS)}"
    )


__all__ = [
    "METHODS",
    "Activation",
    "LearnedMask",
    "Magnitude",
    "Method",
    "Random",
    "Samples",
    "Scoring",
    "Sensitivity",
    "get",
]
