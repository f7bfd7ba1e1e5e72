"""Intervals against a printed table of Student's t; many comparisons at once."""

import pytest
import scipy.stats

from benchmarks.intervals import (
    Estimate,
    detectable,
    half_width,
    holm,
    p_value,
    plus_minus,
    t_quantile,
)
from benchmarks.paper.map.findings import Place

# Of any statistics book: degrees of freedom -> t at 95 % two-sided, 80 % one-sided.
PRINTED = {
    1: (12.706, 1.376),
    2: (4.303, 1.061),
    3: (3.182, 0.978),
    4: (2.776, 0.941),
    5: (2.571, 0.920),
    9: (2.262, 0.883),
    30: (2.042, 0.854),
}


@pytest.mark.parametrize("freedom", PRINTED)
def test_intervals_are_the_printed_table_s(freedom):
    two_sided, one_sided = PRINTED[freedom]
    gap = Estimate(0.3, 0.1, freedom + 1)
    assert t_quantile(0.975, freedom + 1) == pytest.approx(two_sided, abs=5e-4)
    assert half_width(gap) == pytest.approx(0.1 * two_sided, abs=5e-5)
    assert detectable(gap) == pytest.approx(0.1 * (two_sided + one_sided), abs=1e-4)


@pytest.mark.parametrize("freedom", PRINTED)
def test_verdicts_turn_at_the_printed_table_s(freedom):
    """A hundredth of the interval inside it, and outside."""
    edge = 0.1 * PRINTED[freedom][0]
    for share, expected in ((0.99, "not told apart"), (1.01, "loses")):
        gap = Estimate(share * edge, 0.1, freedom + 1)
        assert Place(10, 1.5, "tokens", gap, None).verdict == expected
        assert (p_value(gap) < 0.05) == (expected == "loses")
    place = Place(10, 1.5, "tokens", gap, None)
    assert place.seen == pytest.approx(0.1 * sum(PRINTED[freedom]), abs=1e-4)


def test_p_values_are_those_of_the_t_test():
    values = [0.011, -0.002, 0.02, 0.008, 0.013]
    found = scipy.stats.ttest_1samp(values, 0.0)
    gap = Estimate(sum(values) / 5, float(scipy.stats.sem(values)), 5)
    assert p_value(gap) == pytest.approx(found.pvalue)
    low, high = found.confidence_interval(0.95)
    assert half_width(gap) == pytest.approx((high - low) / 2)


def test_one_number_has_no_interval():
    gap = Estimate(0.3, None, 1)
    assert half_width(gap) is detectable(gap) is p_value(gap) is None
    assert plus_minus([1, 1]) == "One seed has no standard error."


def test_many_comparisons_are_corrected_as_holm_wrote():
    """Ordered 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, and never below the last."""
    found = holm([0.01, 0.04, 0.03, 0.005])
    assert found == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []


def test_a_page_says_what_its_errors_are():
    said = plus_minus([5, 5, 2, 1])
    assert "n = 5 or 2 paired seeds" in said and "2.78 or 12.71 standard errors" in said
