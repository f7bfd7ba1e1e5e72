"""One recommended setting: a value, and why."""

import dataclasses
from typing import Any, Literal

from keras_idea.settings.rules import Advice


@dataclasses.dataclass(frozen=True)
class Setting:
    """One recommended setting.

    Attributes:
        value: what a function takes.
        basis: str. "measured"; "an estimate"; or "given": it is yours, or follows from
            other settings.
        reason: str. What is known, with the letters of the measurements, as listed in
            docs/settings.md.
    """

    value: Any
    basis: Literal["measured", "an estimate", "given"]
    reason: str


def setting(advice: Advice, value: Any = None) -> Setting:
    """An advice that is followed; `value` is what its share comes to."""
    basis: Any = "measured" if advice.sources else "an estimate"
    return Setting(advice.value if value is None else value, basis, advice.reason)


def given(value: Any, reason: str) -> Setting:
    """What is not a recommendation."""
    return Setting(value, "given", reason)
