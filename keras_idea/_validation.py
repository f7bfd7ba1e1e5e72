"""Checks arguments and packages; the errors say what was received and is allowed."""

import contextlib
import difflib
import importlib
import importlib.util
import math
import numbers
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from keras_idea.errors import ArgumentError, KerasIdeaError, MissingPackage

T = TypeVar("T")


def check_int(
    name: str, value: Any, minimum: int | None = None, maximum: int | None = None
) -> int:
    """Returns `value` as an `int`; rejects a bool, a fraction, a value out of range."""
    low = -math.inf if minimum is None else minimum
    high = math.inf if maximum is None else maximum
    with contextlib.suppress(TypeError):
        number = operator.index(value)
        if not isinstance(value, bool) and low <= number <= high:
            return number
    ends = ((">=", minimum), ("<=", maximum))
    allowed = " and".join(f" {sign} {end}" for sign, end in ends if end is not None)
    must_be = "is required:" if value is None else "must be"
    raise ArgumentError(
        f"`{name}` {must_be} an integer{allowed}. Received: {name}={value!r}."
    )


def check_number(
    name: str,
    value: Any,
    minimum: float = 0.0,
    maximum: float | None = None,
    exclude_maximum: bool = False,
) -> float:
    """Returns `value` as a `float` if it is in the range, which may exclude `maximum`.

    Without a `maximum` it must be finite.
    """
    upper = math.inf if maximum is None else maximum
    below = maximum is None or exclude_maximum
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if minimum <= float(value) < upper or (value == upper and not below):
            return float(value)
    raise ArgumentError(
        f"`{name}` must be a number in [{minimum}, {upper}{')' if below else ']'}. "
        f"Received: {name}={value!r}."
    )


def check_size(name: str, value: Any) -> int | float:
    """Returns a number of units as an `int`, or a fraction of them as a `float`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        if int(value) >= 1:
            return int(value)
    elif isinstance(value, numbers.Real) and 0 < float(value) < 1:
        return float(value)
    raise ArgumentError(
        f"`{name}` must be an integer >= 1, how many to keep, or a float in (0, 1), "
        f"the fraction to keep. Received: {name}={value!r}."
    )


def check_choice(name: str, value: T, choices: Sequence[object]) -> T:
    """Returns `value` if it is one of `choices`, or raises an `ArgumentError`."""
    if value in choices:
        return value
    raise ArgumentError(
        f"`{name}` must be one of {', '.join(map(repr, choices))}. Received: "
        f"{name}={value!r}.{did_you_mean(value, choices)}"
    )


def what_was_raised(error: Exception) -> str:
    """Returns the class of an error and the first line of its message."""
    cause = str(error).rpartition("Error encountered:")[-1]  # Keras puts its own before
    lines = [line.strip() for line in cause.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Exception enc")]
    first = re.sub("\x1b\\[[01]m", "", lines[0] if lines else "")[:160]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Returns the end of a message that suggests the nearest known names, or ""."""
    if not isinstance(name, str):
        return ""
    names = {word.lower(): word for word in known if isinstance(word, str)}
    near = difflib.get_close_matches(name.lower(), names, n=2)
    meant = " or ".join(repr(names[word]) for word in near)
    return f" Did you mean {meant}?" if meant else ""


def plural(count: int, one: str) -> str:
    """Returns a count with its noun, such as "1,000 steps"."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def require(
    module: str,
    purpose: str,
    extra: str = "data",
    error: type[KerasIdeaError] = MissingPackage,
) -> Any:
    """Imports a package of an extra, or raises `error` with how to install it.

    `purpose` is what needs it, as the message begins.
    """
    try:
        return importlib.import_module(module)
    except ImportError as cause:
        raise error(
            f"{purpose} needs {module.split('.')[0]!r}, which cannot be imported "
            f'({cause}). Install it: pip install "keras-idea[{extra}]"'
        ) from cause


def require_installed(
    modules: Iterable[str],
    purpose: str,
    extra: str,
    error: type[KerasIdeaError] = MissingPackage,
) -> None:
    """As `require`, for packages that another package will import."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if absent:
        raise error(
            f"{purpose} needs {' and '.join(absent)}. Install the missing packages: "
            f'pip install "keras-idea[{extra}]"'
        )
