"""How figures are written on pages."""

import re

from benchmarks.intervals import LEVEL, Estimate, p_value

_NUMBER = re.compile(r"\**[-+]?\d")
BETTER, WORSE, NEITHER = "better", "worse", "no significant difference"


def signed(gap: Estimate, digits: int = 3) -> str:
    """A difference with its error.

    Example:
    >>> signed(Estimate(-0.0123, 0.004, 5))
    '-0.012 ± 0.004'
    """
    return f"{gap.mean:+.{digits}f}{_error(gap, digits)}"


def plain(value: Estimate, digits: int = 3) -> str:
    """A mean with its error."""
    return f"{value.mean:.{digits}f}{_error(value, digits)}"


def _error(value, digits):
    return "" if value.error is None else f" ± {value.error:.{digits}f}"


def span(values, digits: int = 3) -> str:
    """From the least to the greatest of some numbers.

    Example:
    >>> span([0.3, 0.1, 0.2], 1)
    '0.1–0.3'
    """
    ends = min(values), max(values)
    sign = "+" if ends[0] < 0 else ""
    least, most = (f"{value:{sign}.{digits}f}" for value in ends)
    return least if least == most else f"{least}{' to ' if sign else '–'}{most}"


def verdict(gap: Estimate) -> str:
    """What a difference in bits per byte shows, each test for itself."""
    p = p_value(gap)
    if p is None or p >= 1 - LEVEL:
        return NEITHER
    return BETTER if gap.mean < 0 else WORSE


def table(lines: list[list[str]]) -> str:
    """A Markdown table; the first line is its header. Numbers are on the right.

    Example:
    >>> print(table([["what", "n"], ["one", "1"]]))
    | what | n |
    |---|---:|
    | one | 1 |
    """
    columns = zip(*lines[1:], strict=True)
    numbers = [all(_NUMBER.match(cell) for cell in column) for column in columns]
    rule = "|" + "|".join("---:" if number else "---" for number in numbers) + "|"
    header, *rows = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join([header, rule, *rows])
