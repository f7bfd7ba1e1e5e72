"""Widths trained jointly beside models from scratch, as blocks of pages."""

import functools
import json
import math
from collections.abc import Callable

from benchmarks.intervals import Estimate, estimate
from benchmarks.pages.of_family import SCRATCH, joint_bits, seeds_of
from benchmarks.pages.words import signed, table
from benchmarks.paper import elastic
from benchmarks.paper.elastic_table import records
from benchmarks.paper.elastic_ways import all_name, paid_flops
from benchmarks.paper.family_plan import MAP_FAMILY
from benchmarks.paper.records import RESULTS

_EACH, _OFF, _ALL = (
    "a third of the FLOPs for each width",
    "all FLOPs for one width, read off the map",
    "all FLOPs for one width, trained",
)


def _json(name: str) -> dict:
    path = RESULTS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def off_the_map(width: int) -> dict[int, float]:
    """Bits per byte by seed, from scratch with the FLOPs of all widths together.

    Between the map's two nearest budgets, linear in the logarithm of the FLOPs. The
    curve is convex, so a model trained so would be a little better.
    """
    paid, found = paid_flops(MAP_FAMILY), {}
    for seed in range(5):
        points = {
            record["flops"]: record["bits_per_byte"]
            for record in _json(f"map/cells/seed-{seed}.json").values()
            if record["cell"].get("pipeline") == "scratch" and record["width"] == width
        }
        below = [flops for flops in points if flops <= paid]
        above = [flops for flops in points if flops > paid]
        if below and above:
            one, two = max(below), min(above)
            share = math.log(paid / one) / math.log(two / one)
            found[seed] = (1 - share) * points[one] + share * points[two]
    return found


def trained(width: int) -> dict[int, float]:
    """Bits per byte by seed, from scratch with the FLOPs of all widths together."""
    cells, way = _json("elastic/cells.json"), all_name(width)
    found = records(cells, elastic.searched_before(MAP_FAMILY), way, width)
    return {seed: record["bits"] for seed, record in found.items()}


@functools.cache
def gaps(width: int) -> dict[str, Estimate]:
    """Joint training, by the code of nested.md, minus each rival that is known."""
    ours = joint_bits(width)
    rivals = {
        _EACH: seeds_of(width, SCRATCH),
        _OFF: off_the_map(width),
        _ALL: trained(width),
    }
    found = {}
    for name, theirs in rivals.items():
        gap = estimate(ours[seed] - theirs[seed] for seed in ours if seed in theirs)
        if gap is not None:
            found[name] = gap
    return found


def rivals_table() -> str:
    """Joint training minus models from scratch."""
    widths = MAP_FAMILY.widths
    known = {width: gaps(width) for width in widths}
    lines = [["joint minus from scratch", *(f"FFN width {width}" for width in widths)]]
    for name in (_EACH, _OFF, _ALL):
        found = [known[width].get(name) for width in widths]
        if any(found):
            cells = [f"{signed(g, 4)} (n = {g.count})" if g else "-" for g in found]
            lines.append([name, *cells])
    return (
        f"{table(lines)}\n\nBits per byte; negative: joint training is better. Pairs "
        "of equal seeds were trained on different machines, which moves a run by up to "
        "0.006 bits. What is read off the map lies between two of its budgets, so the "
        "joint model loses at least as much as it says."
    )


BLOCKS: dict[str, Callable[[], str]] = {"joint-rivals": rivals_table}
