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
    """Compares what two tokenizers make of a few texts.

    Args:
        encode: function of a str that returns token ids, the right ones; a KerasHub
            tokenizer is one.
        other: such a function, the one in question.

    Returns:
        str, where they differ, or "" if they do not.
    """
    for text in SAMPLES:
        expected, received = (_ids(f(text)) for f in (encode, other))
        if expected != received:
            return f"{text!r} becomes {received}, not {expected}."
    return ""


def _ids(ids: object) -> list[int]:
    return np.asarray(ids).tolist()
