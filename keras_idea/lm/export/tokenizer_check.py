"""Two tokenizers, compared by what they make of a few texts."""

from collections.abc import Callable

import numpy as np

# Indentation, digits, an apostrophe, other scripts: where tokenizers differ.
SAMPLES = (
    "the quick brown fox jumps",
    "def f(x):\n    if x > 1024:\n\n        return x + 10\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t",
)


def first_difference(
    encode: Callable[[str], object], other: Callable[[str], object]
) -> str:
    """Where the token ids of `other` differ from those of `encode`, or ""."""
    for text in SAMPLES:
        expected, received = (np.asarray(f(text)).tolist() for f in (encode, other))
        if expected != received:
            return f"{text!r} becomes {received}, not {expected}."
    return ""
