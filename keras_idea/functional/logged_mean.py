"""From a mean so far, as Keras logs losses, to the mean of the last steps."""

from typing import TypeVar

import numpy as np

Mean = TypeVar("Mean", float, np.ndarray)


def mean_between(begin: tuple[Mean, Mean], end: tuple[Mean, Mean]) -> Mean:
    """The mean of the values between two points of a running mean.

    Each point is the number of values so far and their mean; arrays are many at once.
    Keras logs a loss as the mean of the epoch so far. Times its batches that is a
    sum, and two sums give the mean in between: exact if batches are equally large.

    Example:
    >>> mean_between((2, 1.5), (3, 2.0))  # of 1, 2 and 3
    3.0
    """
    (before, earlier), (count, mean) = begin, end
    return (mean * count - earlier * before) / (count - before)
