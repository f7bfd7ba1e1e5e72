"""Estimates over seeds and how sure they are: errors, intervals, many at once."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

#: Of every interval and test.
LEVEL = 0.95
POWER = 0.8


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean and how sure it is.

    Args:
        mean: float.
        error: float or None, its standard error: the standard deviation (over
            n - 1) by the root of n; None for fewer than two numbers.
        count: int, n.
    """

    mean: float
    error: float | None
    count: int


def estimate(numbers: Iterable[float | None]) -> Estimate | None:
    """Mean and standard error of independent numbers; None and NaN are left out.

    Example:
    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, error=0.5773502691896257, count=3)
    """
    known = [x for x in numbers if x is not None and math.isfinite(x)]
    if not known:
        return None
    count = len(known)
    spread = statistics.stdev(known) / math.sqrt(count) if count > 1 else None
    return Estimate(statistics.fmean(known), spread, count)


def t_quantile(share: float, count: int) -> float:
    """Student's t below which a share lies, for the mean of `count` numbers.

    Its degrees of freedom are `count - 1`.

    Example:
    >>> round(t_quantile(0.975, 5), 3)
    2.776
    """
    from scipy.stats import t

    return float(t.ppf(share, count - 1))


def half_width(gap: Estimate, level: float = LEVEL) -> float | None:
    """Half of the confidence interval's width; None for fewer than two numbers.

    Example:
    >>> round(half_width(Estimate(0.1, 0.01, 5)), 4)
    0.0278
    """
    if gap.error is None:
        return None
    return t_quantile((1 + level) / 2, gap.count) * gap.error


def detectable(gap: Estimate, power: float = POWER) -> float | None:
    """The smallest true difference that a test of 5% finds with this power."""
    if gap.error is None:
        return None
    return half_width(gap) + t_quantile(power, gap.count) * gap.error


def p_value(gap: Estimate) -> float | None:
    """Two-sided, of a mean of 0; None for fewer than two numbers."""
    if gap.error is None:
        return None
    from scipy.stats import t

    return float(2 * t.sf(abs(gap.mean) / gap.error, gap.count - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values of several comparisons at once, corrected by Holm's method.

    Example:
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, least = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        least = max(least, (len(p_values) - rank) * p_values[i])
        corrected[i] = min(1.0, least)
    return corrected


@dataclasses.dataclass(frozen=True)
class Tally:
    """How many of several comparisons show something at 5%.

    Attributes:
        settings: int, comparisons.
        worse, better: int, of which pruning is significantly so, each test for itself.
        worse_holm, better_holm: int, the same after Holm's correction for all of them.
        least, most: float, the smallest difference that each could have seen.
    """

    settings: int
    worse: int
    worse_holm: int
    better: int
    better_holm: int
    least: float
    most: float


def tally(gaps: Iterable[Estimate | None]) -> Tally | None:
    """Counts what several differences show; None: fewer than two seeds everywhere."""
    known = [gap for gap in gaps if gap is not None and gap.error is not None]
    if not known:
        return None
    alone = [p_value(gap) for gap in known]
    signs = [gap.mean > 0 for gap in known]

    def count(p_values, worse):
        pairs = zip(p_values, signs, strict=True)
        return sum(p < 1 - LEVEL and sign == worse for p, sign in pairs)

    seen = [detectable(gap) for gap in known]
    together = holm(alone)
    counts = [count(p, worse) for worse in (True, False) for p in (alone, together)]
    return Tally(len(known), *counts, min(seen), max(seen))


def plus_minus(counts: Iterable[int], what: str = "paired seeds") -> str:
    """The sentence that says what "±" is on a page.

    Args:
        counts: ints, seeds of the estimates on the page.
        what: str, what is counted.
    """
    known = sorted({count for count in counts if count > 1}, reverse=True)
    if not known:
        return "One seed has no standard error."
    wide = " or ".join(f"{t_quantile((1 + LEVEL) / 2, n):.2f}" for n in known)
    said = " or ".join(map(str, known))
    return (
        f'"±" is the standard error of the mean over n = {said} {what}; the '
        f"{100 * LEVEL:.0f}% confidence interval is the mean ± {wide} standard errors."
    )
