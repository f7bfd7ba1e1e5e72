"""What one run for several widths shows, as blocks of pages."""

import functools
import json
import statistics
from collections.abc import Callable

from benchmarks.intervals import Estimate, estimate
from benchmarks.pages.words import BETTER, plain, signed, span, table, verdict
from benchmarks.paper import nested
from benchmarks.paper.family import ONE_RUN, SEARCH_SEED, chosen, parts
from benchmarks.paper.family_plan import MAP_FAMILY
from benchmarks.paper.map.sizes import parameters
from benchmarks.paper.paper_table import SeededRow, paired_difference
from benchmarks.paper.records import RESULTS

ALONE, SCRATCH = "a run each", "from scratch"


@functools.cache
def _cells() -> dict:
    path = RESULTS / "family/cells.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _by_way(row: str) -> dict[tuple, dict[int, dict]]:
    """(peak, curve) to records of a row by seed; the search's seed is left out."""
    found: dict[tuple, dict[int, dict]] = {}
    for at, rows in _cells().items():
        seed, way = parts(at)
        if seed < SEARCH_SEED and row in rows:
            found.setdefault(way, {})[seed] = rows[row]
    return found


def _records(width: int, name: str) -> dict[int, dict]:
    """A row's records by seed, of one peak and curve.

    For the one run they are what the search chose, for its rivals the best in
    hindsight.
    """
    row = f"{width} neurons, {name}"
    ways = _by_way(row)
    if name == ONE_RUN:
        return ways[chosen(_cells())[row]]
    most = max(len(records) for records in ways.values())
    whole = [records for records in ways.values() if len(records) == most]
    return min(whole, key=lambda r: statistics.fmean(x["bits"] for x in r.values()))


def seeds_of(width: int, name: str) -> dict[int, float]:
    """Bits per byte of a row by seed."""
    return {seed: record["bits"] for seed, record in _records(width, name).items()}


def bits(width: int, name: str) -> Estimate:
    """Bits per byte of a row."""
    found = estimate(record["bits"] for record in _records(width, name).values())
    assert found is not None
    return found


def gap(width: int, rival: str = SCRATCH) -> Estimate:
    """The one run minus a rival, paired by seed."""
    one, other = (_records(width, name) for name in (ONE_RUN, rival))
    both = sorted(one.keys() & other.keys())
    found = estimate(one[seed]["bits"] - other[seed]["bits"] for seed in both)
    assert found is not None
    return found


def budgets() -> list[float]:
    """Tokens per parameter of the rivals from scratch."""
    scale = MAP_FAMILY.scale
    return [
        next(iter(_records(width, SCRATCH).values()))["tokens"]
        / parameters(scale, width)
        for width in MAP_FAMILY.widths
    ]


def won() -> str:
    """The bullet of the family, with its condition."""
    gaps = [-gap(width).mean for width in MAP_FAMILY.widths]
    return (
        "- **One run for several widths paid, on one condition: you want them all.** "
        f"One run for three widths beat three scratch baselines by {span(gaps)} bits "
        "per byte at equal total FLOPs. Each baseline then gets only a third of the "
        f"FLOPs ({span(budgets(), 0)} tokens per parameter). {_joint_won()}"
    )


def _joint_won() -> str:
    """What joint training adds to the bullet; it must be better at every width."""
    gaps = [joint_gap(width, nested.JOINT) for width in MAP_FAMILY.widths]
    assert {verdict(gap) for gap in gaps} == {BETTER}
    baselines = [joint_from_scratch(width) for width in MAP_FAMILY.widths]
    assert {verdict(gap) for gap in baselines} == {BETTER}
    return (
        f"Training the widths jointly was better still, by "
        f"{span([-gap.mean for gap in gaps])}, and better than the three scratch "
        f"baselines by {span([-gap.mean for gap in baselines])}, in the study's own "
        "code; `ki.ElasticCallback` trains so."
    )


def family_table() -> str:
    """All rows, and the one run against its rivals."""
    widths = MAP_FAMILY.widths
    lines = [["bits per byte", *(f"FFN width {width}" for width in widths)]]
    for name in (ONE_RUN, SCRATCH, ALONE):
        lines.append([name, *(plain(bits(width, name), 4) for width in widths)])
    for rival in (SCRATCH, ALONE):
        gaps = [signed(gap(width, rival), 4) for width in widths]
        lines.append([f"one run minus {rival}", *gaps])
    return (
        f"{table(lines)}\n\nEach rival uses the best of its peaks and curves, chosen "
        "in hindsight. The one run uses the peak and the curve that were best with a "
        "seed outside the table. That seed tried each peak once, and only one curve "
        "for the one run."
    )


@functools.cache
def _nested() -> dict[str, SeededRow]:
    path = RESULTS / "nested/cells.json"
    cells = json.loads(path.read_text(encoding="utf-8"))
    return {row.name: row for row in nested.rows(MAP_FAMILY, cells)}


def joint_bits(width: int) -> dict[int, float]:
    """Bits per byte of joint training by seed."""
    return _nested()[f"{width} neurons, {nested.JOINT}"].values


def joint_gap(width: int, name: str) -> Estimate:
    """A way of joint training minus one run with branches, paired by seed."""
    one, other = (
        _nested()[f"{width} neurons, {way}"] for way in (name, nested.BRANCHES)
    )
    found = paired_difference(one, other)
    assert found is not None
    return found


def joint_from_scratch(width: int) -> Estimate:
    """Joint training minus the scratch baseline of a width, paired by seed."""
    ours, theirs = joint_bits(width), seeds_of(width, SCRATCH)
    found = estimate(ours[seed] - theirs[seed] for seed in ours if seed in theirs)
    assert found is not None
    return found


def joint_table() -> str:
    """Widths trained jointly and one run with branches, at equal FLOPs."""
    widths, ways = MAP_FAMILY.widths, (nested.BRANCHES, nested.JOINT, nested.SORTED)
    lines = [["bits per byte", *(f"FFN width {width}" for width in widths)]]
    for name in ways:
        rows = [_nested()[f"{width} neurons, {name}"] for width in widths]
        means = [estimate(row.values.values()) for row in rows]
        lines.append([name, *(plain(mean, 4) for mean in means if mean)])
    for name in ways[1:]:
        gaps = [joint_gap(width, name) for width in widths]
        lines.append([f"{name} minus branches", *(signed(gap, 4) for gap in gaps)])
    count = joint_gap(widths[0], nested.JOINT).count
    return (
        f"{table(lines)}\n\nAll ways have the same FLOPs for the three widths "
        f"together, and {count} paired seeds. Peak and curve of the joint ways were "
        "searched with a seed outside the table."
    )


BLOCKS: dict[str, Callable[[], str]] = {"family": family_table, "joint": joint_table}
