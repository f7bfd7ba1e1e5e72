"""Argument checks that say what was received and what is allowed."""

import difflib
import importlib
import importlib.util
import math
import numbers
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from keras_idea.errors import ArgumentError, KerasIdeaError, MissingPackage

T = TypeVar("T")


def check_int(
    name: str, value: Any, minimum: int | None = None, maximum: int | None = None
) -> int:
    """Returns `value` as an `int`; refuses a bool, a fraction, what is outside."""
    allowed = "an integer"
    if minimum is not None:
        allowed += f" >= {minimum}"
    if maximum is not None:
        allowed += f"{' and' if minimum is not None else ''} <= {maximum}"
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if (
        number is None
        or (minimum is not None and number < minimum)
        or (maximum is not None and number > maximum)
    ):
        must_be = "is required:" if value is None else "must be"
        raise ArgumentError(
            f"`{name}` {must_be} {allowed}. Received: {name}={value!r}."
        )
    return number


def check_number(
    name: str,
    value: Any,
    minimum: float = 0.0,
    maximum: float | None = None,
    exclude_maximum: bool = False,
) -> float:
    """Returns `value` as a `float`, if it is a real number in the range.

    `maximum` None is below infinity; `exclude_maximum` refuses `maximum` itself.
    """
    upper = math.inf if maximum is None else maximum
    below = maximum is None or exclude_maximum
    if (
        not isinstance(value, numbers.Real)
        or isinstance(value, bool)
        or not minimum <= float(value) <= upper
        or (below and value == upper)
    ):
        raise ArgumentError(
            f"`{name}` must be a number in [{minimum}, {upper}{')' if below else ']'}. "
            f"Received: {name}={value!r}."
        )
    return float(value)


def check_choice(name: str, value: T, choices: Sequence[object]) -> T:
    """Returns `value` if it is one of `choices`, or raises an `ArgumentError`."""
    if value not in choices:
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ArgumentError(
            f"`{name}` must be one of {allowed}. Received: {name}={value!r}."
            f"{did_you_mean(value, choices)}"
        )
    return value


def multiples_beside(value: int, factor: int) -> str:
    """The multiples of a factor just below a number and just above it, for a message.

    Example:
    >>> multiples_beside(7, 4), multiples_beside(3, 4)
    ('4 or 8', '4')
    """
    below = value // factor * factor
    return " or ".join(str(n) for n in (below, below + factor) if n)


def what_was_raised(error: Exception) -> str:
    """The class of an error, and the first line that says what is wrong.

    Example:
    >>> what_was_raised(KeyError("mask"))
    "KeyError: 'mask'"
    """
    cause = str(error).rpartition("Error encountered:")[-1]  # in what Keras wraps
    lines = [line.strip() for line in cause.splitlines()]
    meaningful = [
        line for line in lines if line and not line.startswith("Exception enc")
    ]
    said = (meaningful or [""])[0].replace("\x1b[1m", "").replace("\x1b[0m", "")
    said = said if len(said) <= 160 else f"{said[:157]}..."
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The end of a message that suggests the nearest known names, two at most, or "".

    Only a str is like a name, and known as one. A second name is about as near.

    Example:
    >>> did_you_mean("LAMA3", ["llama", "llama3"])
    " Did you mean 'llama3'?"
    >>> did_you_mean("target_width", ["target_bits", "target_dim", "hub"])
    " Did you mean 'target_bits' or 'target_dim'?"
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


def require(
    module: str,
    purpose: str,
    extra: str = "data",
    error: type[KerasIdeaError] = MissingPackage,
) -> Any:
    """Imports a package of an extra, or raises `error` with how to install it.

    Args:
        module: str, its import name, such as "zstandard" or "pyarrow.parquet".
        purpose: str, what needs it, for the message: "Reading 'a.jsonl.zst'".
        extra: str, the extra of this package that brings it. Default "data".
        error: class of the error, `MissingPackage` by default.

    Example:
    >>> zstandard = require("zstandard", "Reading 'a.jsonl.zst'")
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{purpose} needs the package {module.split('.')[0]!r}, which cannot be "
            f'imported ({cause}). Install it: pip install "keras-idea[{extra}]"'
        ) from cause


def missing(modules: Iterable[str]) -> list[str]:
    """Those of several import names that are not installed; none is imported."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def require_installed(
    modules: Iterable[str],
    purpose: str,
    extra: str,
    error: type[KerasIdeaError] = MissingPackage,
) -> None:
    """As `require`, of packages that another package will import."""
    absent = missing(modules)
    if absent:
        raise error(
            f"{purpose} needs {' and '.join(absent)}, not installed here: "
            f'pip install "keras-idea[{extra}]".'
        )
