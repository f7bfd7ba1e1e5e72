"""Fields that check themselves: the base of the tables of a run's description."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.validation import (
    check_choice,
    check_int,
    check_number,
    did_you_mean,
)

#: Takes the name of a field and its value; returns the value or raises ValueError.
Check = Callable[[str, Any], Any]
# Steps and shapes are counted in int32.
_LARGEST = 2**31 - 1


def checked(default: Any, check: Check) -> Any:
    """A field whose value `check(name, value)` returns, or refuses by ValueError."""
    return dataclasses.field(default=default, metadata={"check": check})


def optional(check: Check) -> Any:
    """A field for None, its default, or a value that `check` takes."""
    return checked(
        None, lambda name, value: None if value is None else check(name, value)
    )


def integer(default: int, minimum: int, maximum: int | None = None) -> Any:
    """A field for an int in [minimum, maximum]; None: what any backend can count."""
    return checked(default, whole(minimum, maximum))


def number(
    default: float,
    minimum: float,
    maximum: float | None = None,
    exclude_maximum: bool = False,
) -> Any:
    """A field for a finite float in [minimum, maximum], or [minimum, maximum)."""
    check = functools.partial(
        check_number,
        minimum=minimum,
        maximum=maximum,
        exclude_maximum=exclude_maximum,
    )
    return checked(default, check)


def choice(default: str, *choices: str) -> Any:
    """A field for one of a few strings."""
    return checked(default, one_of(*choices))


def whole(minimum: int = 1, maximum: int | None = None) -> Check:
    """Takes an int in [minimum, maximum]; None: what any backend can count."""

    def check(name: str, value: Any) -> int:
        number = check_int(name, value, minimum, maximum)
        if number > _LARGEST:
            raise ArgumentError(
                f"`{name}` must be at most {_LARGEST}. Received: {name}={value!r}."
            )
        return number

    return check


def count(name: str, value: Any) -> int:
    """`value` if it is an int >= 1, of any size."""
    return check_int(name, value, minimum=1)


def above_zero(below: float | None = None) -> Check:
    """Takes a finite float > 0, and below `below`."""

    def check(name: str, value: Any) -> float:
        number = check_number(name, value, minimum=0.0)
        if number == 0 or (below is not None and number >= below):
            end = "" if below is None else f" and below {below}"
            raise ArgumentError(
                f"`{name}` must be a number above 0{end}. Received: {name}={value!r}."
            )
        return number

    return check


def one_of(*choices: str) -> Check:
    """Takes one of a few strings."""
    return functools.partial(check_choice, choices=choices)


def check_bool(name: str, value: object) -> bool:
    """`value` if it is a bool."""
    if not isinstance(value, bool):
        raise ArgumentError(
            f"`{name}` must be true or false. Received: {name}={value!r}."
        )
    return value


def check_text(name: str, value: object) -> str:
    """`value` if it is a str that says something."""
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(
            f"`{name}` must be a non-empty string. Received: {name}={value!r}."
        )
    if "\0" in value:  # which ends a path for the operating system
        raise ArgumentError(
            f"`{name}` must not hold a NUL. Received: {name}={value!r}."
        )
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ArgumentError(
            f"`{name}` cannot be encoded. Received: {name}={value!r}. Use whole "
            "characters only."
        ) from None
    return value


def check_kept(name: str, value: Any) -> int | float:
    """`value` if it is a whole number of neurons or heads, or the fraction kept."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return whole()(name, value)
    if not isinstance(value, float) or not 0.0 < value < 1.0:
        raise ArgumentError(
            f"`{name}` must be a whole number >= 1 to keep, or a fraction of all in "
            f"(0, 1). Received: {name}={value!r}."
        )
    return value


def check_mesh(name: str, value: Any) -> dict[str, int]:
    """`value` if it is the sizes of a mesh's axes."""
    axes = ("data", "model")
    if not isinstance(value, Mapping) or not value or not set(value) <= set(axes):
        named = value if isinstance(value, Mapping) else ()
        wrong = next((axis for axis in named if axis not in axes), None)
        raise ArgumentError(
            f"`{name}` must be a table of the axes data and model, such as "
            f"{{ data = 4, model = 2 }}. Received: {name}={value!r}."
            f"{did_you_mean(wrong, axes)}"
        )
    return {
        axis: whole()(f"{name}.{axis}", value[axis]) for axis in axes if axis in value
    }


@dataclasses.dataclass(frozen=True)
class Table:
    """Checks every field of a frozen dataclass by its metadata."""

    table: ClassVar[str]

    def __new__(cls, **given: object) -> Self:
        """Notes which keys were given, for messages; not a field: it is no value."""
        made = super().__new__(cls)
        object.__setattr__(made, "_given", frozenset(given))
        return made

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name = f"{self.table}.{field.name}"
            try:
                value = field.metadata["check"](name, getattr(self, field.name))
            except ValueError as error:
                raise ConfigError(str(error)) from None
            object.__setattr__(self, field.name, value)
        self._check_together()

    def with_defaults(self, **values: object) -> Self:
        """The same table with other defaults for keys that nobody has set."""
        given: frozenset[str] = vars(self)["_given"]
        others = {key: value for key, value in values.items() if key not in given}
        made = dataclasses.replace(self, **others)
        object.__setattr__(made, "_given", given)
        return made

    def describe(self, *keys: str) -> str:
        """Keys with their values, for a message; marks those that nobody has set.

        Example:
        >>> from keras_idea.lm.runs.config.tables import DataConfig
        >>> DataConfig(text="mine.txt").describe("text", "batch_size")
        "text='mine.txt', batch_size=32 (default)"
        """
        given: frozenset[str] = vars(self)["_given"]
        return ", ".join(
            f"{key}={getattr(self, key)!r}" + ("" if key in given else " (default)")
            for key in keys
        )

    def _check_together(self) -> None:
        """What no single key can tell."""


def divisors(value: int) -> list[int]:
    """All divisors of an int >= 1, ascending."""
    small = [n for n in range(1, math.isqrt(value) + 1) if value % n == 0]
    return sorted({*small, *(value // n for n in small)})


def nearest_multiple(value: int, factor: int) -> int:
    """The multiple of `factor` nearest to `value`, at least `factor`."""
    return max(factor, round(value / factor) * factor)
