"""The page of the study of several widths, from its cells: nothing is trained."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from benchmarks.intervals import Estimate, detectable, estimate, plus_minus
from benchmarks.paper.elastic_ways import (
    BRANCHES,
    TURN,
    Joint,
    all_name,
    each_name,
    paid_flops,
    ways,
)
from benchmarks.paper.family import SEARCH_SEED, parts
from benchmarks.paper.family_plan import Family
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.study import TEXT_NOTE
from keras_idea.files import write_atomically
from keras_idea.lm.report.table import markdown_table

Results: TypeAlias = dict[str, dict[str, Any]]
#: Way -> (peak, curve).
Rates: TypeAlias = Mapping[str, tuple[float, str]]

EACH = "scratch, an equal share each"
ALL = "scratch, all FLOPs each"


def rows_of(family: Family) -> dict[str, dict[int, str]]:
    """The table's rows: row -> width -> the way that makes its model."""
    joint = [name for name, way in ways(family).items() if isinstance(way, Joint)]
    found = {name: dict.fromkeys(family.widths, name) for name in [*joint, BRANCHES]}
    found[EACH] = {width: each_name(width) for width in family.widths}
    found[ALL] = {width: all_name(width) for width in family.widths}
    return found


def records(results: Results, rates: Rates, way: str, width: int) -> dict[int, dict]:
    """The seeds of a way's model of a width, at the rates chosen: seed -> record."""
    found = {}
    for at, cell in results.items():
        name, _, rest = at.partition(": ")
        seed, how = parts(rest)
        if name == way and seed < SEARCH_SEED and tuple(how) == tuple(rates[way]):
            found[seed] = cell["members"][str(width)]
    return found


class Table:
    """The numbers of the page.

    Args:
        family: `Family`.
        results: dict, the cells.
        rates: dict, way -> (peak, curve).
    """

    def __init__(self, family: Family, results: Results, rates: Rates):
        self._rows, self._family = rows_of(family), family
        self._records = {
            (row, width): records(results, rates, way, width)
            for row, ways_of in self._rows.items()
            for width, way in ways_of.items()
        }

    @property
    def rows(self) -> list[str]:
        """List of str, the rows that have a seed at some width."""
        return [row for row in self._rows if self.seeds(row)]

    def seeds(self, row: str) -> list[int]:
        """List of int, how many seeds there are, per width."""
        counts = [len(self._records[row, width]) for width in self._family.widths]
        return counts if any(counts) else []

    def bits(self, row: str, width: int) -> dict[int, float]:
        """dict, seed -> bits per byte."""
        return {seed: r["bits"] for seed, r in self._records[row, width].items()}

    def fact(self, row: str, width: int, name: str) -> Any:
        """What the first record of a row's model says, or None."""
        known = self._records[row, width]
        return known[min(known)][name] if known else None

    def mean(self, row: str, width: int) -> Estimate | None:
        """Bits per byte over the seeds."""
        return estimate(self.bits(row, width).values())

    def gap(self, row: str, other: str, width: int) -> Estimate | None:
        """What a row has more than another, over the seeds that both have."""
        one, two = self.bits(row, width), self.bits(other, width)
        return estimate(one[seed] - two[seed] for seed in one if seed in two)

    def pairs(self) -> list[tuple[str, str]]:
        """What is compared: turn with its rivals, each other joint way with turn."""
        others = [row for row in self.rows if row not in (TURN, BRANCHES, EACH, ALL)]
        rivals = [row for row in (BRANCHES, EACH, ALL) if row in self.rows]
        against = [(TURN, rival) for rival in rivals] if TURN in self.rows else []
        return against + [(row, TURN) for row in others if TURN in self.rows]


def _means(table: Table, widths) -> str:
    lines = [
        ["bits per byte", *(f"{w} neurons" for w in widths), "seeds", "tokens (M)"]
    ]
    for row in table.rows:
        tokens = [table.fact(row, width, "tokens") for width in widths]
        said = [f"{n / 1e6:.2f}" for n in dict.fromkeys(tokens) if n is not None]
        counts = " / ".join(map(str, dict.fromkeys(table.seeds(row))))
        means = [_estimate(table.mean(row, width)) for width in widths]
        lines.append([row, *means, counts, " / ".join(said)])
    return markdown_table(lines).rstrip()


def _gaps(table: Table, widths) -> str:
    lines = [
        ["paired difference", *(f"{w} neurons" for w in widths), "pairs", "detectable"]
    ]
    for row, other in table.pairs():
        gaps = [table.gap(row, other, width) for width in widths]
        seen = [d for d in (gap and detectable(gap) for gap in gaps) if d is not None]
        count = " / ".join(dict.fromkeys(str(g.count) for g in gaps if g is not None))
        least = f"{min(seen):.4f}–{max(seen):.4f}" if seen else "-"
        named = f"{row} minus {other}"
        lines.append([named, *(_estimate(g, "+") for g in gaps), count, least])
    return markdown_table(lines).rstrip()


def _estimate(value: Estimate | None, sign: str = "") -> str:
    if value is None:
        return "-"
    error = "" if value.error is None else f" ± {value.error:.4f}"
    return f"{value.mean:{sign}.4f}{error}"


def _searched(results: Results, rates: Rates, family: Family) -> str:
    tried: dict[str, int] = {}
    for at in results:
        way, _, rest = at.partition(": ")
        if parts(rest)[0] == SEARCH_SEED:
            tried[way] = tried.get(way, 0) + 1
    unit = family.scale.peak_learning_rate
    said = []
    for way in dict.fromkeys(at.partition(": ")[0] for at in results):
        peak, shape = rates[way]
        how = f"{tried[way]} tried" if way in tried else "searched before"
        said.append(f"{way}: {peak * unit:.2g}, {shape} ({how})")
    return "; ".join(said)


def write(folder, family: Family, results: Results, rates: Rates) -> None:
    """Writes elastic.md and elastic.json."""
    table, widths = Table(family, results, rates), family.widths
    counts = [n for row in table.rows for n in table.seeds(row)]
    first = next(iter(results.values()))
    known = first["versions"]
    made_with = ", ".join(f"{name} {v}" for name, v in known.items() if name != "cpu")
    parts_ = [
        f"# Several widths in one run: {', '.join(map(str, widths))} neurons",
        _means(table, widths),
        *([_gaps(table, widths)] if table.pairs() else []),
        "Bits per byte of held-out text: lower is better. A token is a byte. "
        f"Differences are paired by seed: negative is better. {plus_minus(counts)} "
        '"Detectable" is the smallest true difference that a test of 5% finds with 80% '
        f"power, from the least to the greatest of the widths. {ONE_CPU}",
        TEXT_NOTE,
        f"Every row has {paid_flops(family) / 1e12:.2f} TFLOPs for all "
        f'{len(widths)} widths together, but for "{ALL}": there each model alone has '
        f'them, {len(widths)} times as many together. "{EACH}": each model has an '
        "equal share. The tokens are those that the model of a width trains on, of "
        "joint ways those of all widths.",
        f"Learning rates: a seed outside the table ({SEARCH_SEED}) tried peaks and "
        'curves; "searched before" are the choices of nested.md and family.md for the '
        f"same way, of as many peaks and curves. Chosen: "
        f"{_searched(results, rates, family)}.",
        f"CPU: {known['cpu']}, {first['threads']} thread; {made_with}. The machine was "
        "busy, which moves times and no losses.",
    ]
    write_atomically(folder / "elastic.md", "\n\n".join(parts_) + "\n")
    write_atomically(folder / "elastic.json", _json(table, widths, rates))


def _json(table: Table, widths, rates: Rates) -> str:
    rows = [
        {
            "name": row,
            "width": width,
            "values": table.bits(row, width),
            "tokens": table.fact(row, width, "tokens"),
            "flops": table.fact(row, width, "flops"),
        }
        for row in table.rows
        for width in widths
    ]
    facts = {"rows": rows, "rates": dict(rates)}
    return json.dumps(facts, indent=1) + "\n"
