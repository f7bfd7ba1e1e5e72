"""What the tables of the paper's kind show, as blocks of pages."""

import functools
from collections.abc import Callable

from benchmarks.intervals import Estimate, plus_minus, tally
from benchmarks.pages.studies import table as recorded
from benchmarks.pages.words import plain, signed, span, table, verdict
from benchmarks.paper.map.compared import PAPER_EFFECT
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.scale import SCALES
from benchmarks.paper.tables import SAME_TOKENS

#: Where the pages of the tables lie, seen from docs/.
FROM_DOCS = "../benchmarks/results/paper/"
SIZES = ("1.3", "2", "2.7", "4", "5.3")
BASE = "f1 = mean, f2 = max"


@functools.cache
def recorded_table(number: int):
    return recorded(number)


def gap(number: int, row: str, reference: str) -> Estimate:
    """A row of a table minus another."""
    return recorded_table(number).gap(row, reference)


def size(ratio: str) -> Estimate:
    return gap(5, f"enlarged {ratio} times", SAME_TOKENS)


def varied() -> str:
    """What tables 4 to 12 vary, a line a comparison."""
    rows: list[tuple[int, str, Estimate]] = []
    half = "enlarged 50% of the tokens, integrated"
    for share in ("10%", "25%", "75%", "90%"):
        row = f"enlarged {share} of the tokens, integrated"
        rows.append(
            (8, f"wide for {share} of the steps instead of 50%", gap(8, row, half))
        )
    for share in ("10%", "30%", "70%"):
        row = f"enlarged 50%, pruning {share} of the rest"
        rows.append(
            (6, f"pruning over {share} of the rest instead of 50%", gap(6, row, BASE))
        )
    rows += [(5, f"enlarged {r}×, vs. scratch baseline", size(r)) for r in SIZES]
    for kept in ("12.5%", "25.0%", "37.5%", "50.0%", "75.0%"):
        pair = (f"{kept} kept, pruned", f"{kept} kept, from scratch")
        rows.append(
            (11, f"{kept} of the neurons kept, vs. scratch baseline", gap(11, *pair))
        )
    every = "a mask every step"
    for name in ("every 5 steps", "every 25 steps", "every 125 steps"):
        rows.append(
            (7, f"a new mask {name} instead of every step", gap(7, name, every))
        )
    once = "once, at the end of pruning"
    rows.append((7, "one mask at the end instead of every step", gap(7, once, every)))
    plain_run = "pruning without distillation"
    taught = gap(4, "pruning with distillation", plain_run)
    rows.append((4, "with the trained wide model as teacher", taught))
    lines = [["what", "difference", "verdict", "table"]]
    for number, what, difference in rows:
        link = f"[{number}]({FROM_DOCS}{recorded_table(number).path.stem}.md)"
        lines.append([what, signed(difference), verdict(difference), link])
    count = tally(difference for _, _, difference in rows)
    return (
        f"{table(lines)}\n\nEach verdict comes from a single test. In this table, "
        f"{count.worse + count.better} of {count.settings} differences are significant "
        f"at 5%, and {count.worse_holm + count.better_holm} of them after Holm's "
        "correction."
    )


def pipelines() -> str:
    """Integrated minus naive at "mini", wherever both were run."""
    lines = [["setting", "integrated minus naive", "verdict", "table"]]
    for share in ("10%", "25%", "50%", "75%", "90%"):
        rows = [f"enlarged {share} of the tokens, {x}" for x in ("integrated", "naive")]
        _add(lines, 8, f"wide for {share} of the steps", *rows)
    for name in ("cosine", "warm-up, stable, decay"):
        _add(lines, 9, name, *(f"{name}, {x}" for x in ("integrated", "naive")))
    for name in ("adamw", "lion", "muon", "adafactor"):
        _add(lines, 10, name, *(f"{name}, {x}" for x in ("integrated", "naive")))
    return table(lines)


def why_restarted() -> str:
    """How far from trained out the models of "tiny" are."""
    half = gap(1, "from scratch, half the tokens", SAME_TOKENS)
    longer = gap(1, SAME_TOKENS, "from scratch, the same FLOPs")
    names = (
        "from scratch, half the tokens",
        SAME_TOKENS,
        "from scratch, the same FLOPs",
    )
    steps = [
        recorded_table(1).rows[name].tokens // SCALES["tiny"].tokens_a_step
        for name in names
    ]
    return (
        f"{steps[1]:,} steps are far from enough to train these models fully. The "
        f"scratch baseline still gains {plain(half)} bits per byte from {steps[0]:,} "
        f"to {steps[1]:,} steps, and {plain(longer)} from there to {steps[2]:,}."
    )


def errors() -> str:
    """What "±" is, and what is significant, in all tables."""
    pairs = [(n, row) for n in range(1, 13) for row in recorded_table(n).rows.values()]
    counts = {len(row.values) for _, row in pairs}
    gaps = [
        gap(number, row.name, row.reference)
        for number, row in pairs
        if number > 3 and row.reference
    ]
    count = tally(x for x in gaps if x.error)
    shown = count.worse + count.better, count.worse_holm + count.better_holm
    return (
        f"{plus_minus(counts)} A difference is significant at 5% if it is larger than "
        "that half width, in a single test. Tables 4 to 12 compare "
        f"{count.settings} rows with a reference: {shown[0]} differences are "
        f"significant, {shown[1]} after Holm's correction. "
        f"With 80% power, they could detect {span([count.least, count.most])} bits; "
        f"the paper's effect is about {PAPER_EFFECT:.3f}. {ONE_CPU}"
    )


def _add(lines, number, what, row, reference):
    difference = gap(number, row, reference)
    link = f"[{number}]({recorded_table(number).path.stem}.md)"
    lines.append([what, signed(difference, 4), verdict(difference), link])


BLOCKS: dict[str, Callable[[], str]] = {
    "varied": varied,
    "pipelines": pipelines,
    "why-restarted": why_restarted,
    "errors": errors,
}
