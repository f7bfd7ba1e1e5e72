"""Widths trained jointly beside models from scratch, as blocks of pages."""

import functools
import json
import math
from collections.abc import Callable

from benchmarks.checkpoints.texts import HELD_OUT
from benchmarks.intervals import Estimate, estimate
from benchmarks.pages.of_family import joint_bits, joint_from_scratch
from benchmarks.pages.words import signed, table
from benchmarks.paper import elastic
from benchmarks.paper.elastic_table import Table, records
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
    curve is convex, so a model trained so would be a little better. Of a width that the
    map has not, between the two nearest that it has.
    """
    found = {}
    for seed in range(5):
        points: dict[int, dict[float, float]] = {}
        for record in _json(f"map/cells/seed-{seed}.json").values():
            if record["cell"].get("pipeline") == "scratch":
                own = points.setdefault(record["width"], {})
                own[record["flops"]] = record["bits_per_byte"]
        paid = paid_flops(MAP_FAMILY)
        of_width = {w: _between(own, paid) for w, own in points.items()}
        known = {w: bits for w, bits in of_width.items() if bits is not None}
        bits = _between(known, width)
        if bits is not None:
            found[seed] = bits
    return found


def _between(points: dict, at: float) -> float | None:
    """A value between the nearest points, linear in the logarithm; None: outside."""
    below = [x for x in points if x <= at]
    above = [x for x in points if x >= at]
    if not below or not above:
        return None
    one, two = max(below), min(above)
    if one == two:
        return points[one]
    share = math.log(at / one) / math.log(two / one)
    return (1 - share) * points[one] + share * points[two]


def trained(width: int) -> dict[int, float]:
    """Bits per byte by seed, from scratch with the FLOPs of all widths together."""
    cells, way = _json("elastic/cells.json"), all_name(width)
    found = records(cells, elastic.searched_before(MAP_FAMILY), way, width)
    return {seed: record["bits"] for seed, record in found.items()}


@functools.cache
def gaps(width: int) -> dict[str, Estimate]:
    """Joint training, by the code of nested.md, minus each rival that is known."""
    ours = joint_bits(width)
    found = {_EACH: joint_from_scratch(width)}
    for name, theirs in ((_OFF, off_the_map(width)), (_ALL, trained(width))):
        gap = estimate(ours[seed] - theirs[seed] for seed in ours if seed in theirs)
        if gap is not None and gap.count > 1:
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
        "0.006 bits. What is read off the map lies between two of its budgets "
        "(and, for 114, between its widths of 96 and 171)."
    )


def ways_table() -> str:
    """Each way of `ElasticCallback` minus "turn", and "turn" minus its rivals."""
    cells, widths = _json("elastic/cells.json"), MAP_FAMILY.widths
    study = Table(MAP_FAMILY, cells, elastic.chosen(cells, MAP_FAMILY))
    lines = [["bits per byte", *(f"FFN width {width}" for width in widths)]]
    seeds = set()
    for row, other in study.pairs():
        gaps = [study.gap(row, other, width) for width in widths]
        seeds |= {gap.count for gap in gaps}
        lines.append([f"{row} minus {other}", *(signed(gap, 4) for gap in gaps)])
    [count] = seeds
    return (
        f"{table(lines)}\n\nNegative: the first is better. {count} paired seeds, all "
        "on one type of CPU. Peak and curve of each way were searched with a seed "
        "outside the table, of some by an earlier study. Equal FLOPs for all widths "
        "together, but for the models that have all FLOPs each."
    )


def checkpoint_table() -> str:
    """Three widths of SmolLM2 in one run, beside a recovery each."""
    folder = RESULTS.parent / "checkpoints" / "smollm2"

    def cell(share: float, how: str, tokens: int) -> dict:
        path = folder / f"{share:g}-{how}-{tokens}-0.0003-0.json"
        return json.loads(path.read_text(encoding="utf-8"))

    def perplexities(found: dict) -> str:
        return " / ".join(f"{math.exp(found[name]):.1f}" for name in HELD_OUT)

    lines = [["neurons kept", "one run, 196,608 tokens", "a run each, 65,536 tokens"]]
    together = cell(1.0, "several_widths+logits", 196_608)
    lines.append(["all", perplexities(together), "–"])
    for share in (0.8, 0.67, 0.5):
        together = cell(share, "several_widths+logits", 196_608)
        alone = cell(share, "refit+logits", 65_536)
        lines.append([f"{share:g}", perplexities(together), perplexities(alone)])
    return (
        f"{table(lines)}\n\nSmolLM2-135M-Instruct; perplexity per token of held-out "
        "OpenWebText / WikiText-2. Both with the wide model's logits and a peak of "
        "3e-4; one seed. A run each refits first."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "joint-checkpoint": checkpoint_table,
    "joint-rivals": rivals_table,
    "joint-ways": ways_table,
}
