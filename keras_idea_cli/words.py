"""Words of messages: names that were meant, and counts of things.

Here, and not in `keras_idea`, because the command line speaks before Keras is imported;
the package takes them from `keras_idea.validation`.
"""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The end of a message that suggests the nearest known names, two at most, or "".

    Only a str is like a name, and known as one. A second name is about as near.

    Example:
    >>> did_you_mean("LAMA3", ["llama", "llama3"])
    " Did you mean 'llama3'?"
    >>> did_you_mean("target_width", ["target_dtype", "target_dim", "hub"])
    " Did you mean 'target_dtype' or 'target_dim'?"
    """
    if not isinstance(name, str):
        return ""
    names = {word.lower(): word for word in known if isinstance(word, str)}
    near = difflib.get_close_matches(name.lower(), names, n=2)
    alike = [difflib.SequenceMatcher(None, name.lower(), word).ratio() for word in near]
    meant = [
        names[word]
        for word, ratio in zip(near, alike, strict=True)
        if ratio > alike[0] - 0.05
    ]
    return f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def plural(count: int, one: str, several: str | None = None) -> str:
    """A count with its noun; `several` is `one` with an "s" by default.

    Example:
    >>> plural(1, "neuron"), plural(1000, "step"), plural(0, "process", "processes")
    ('1 neuron', '1,000 steps', '0 processes')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"
