"""The map's comparisons in words: what they are, what they show, how many do."""

import math

from benchmarks.intervals import Tally, plus_minus, tally
from benchmarks.paper.map.arms import IDEA, REWARMED, Arm
from benchmarks.paper.map.findings import AGAINST
from benchmarks.paper.map.sizes import size_note
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.plan import plan
from benchmarks.paper.study import TEXT_NOTE
from keras_idea.lm.report.table import markdown_table

#: The learning rate of a pruned run, in words.
RATES = {IDEA: "one cosine", REWARMED: "rewarmed"}
#: A verdict on pruning, in words.
VERDICTS = {
    "wins": "pruning better",
    "loses": "pruning worse",
    "not told apart": "no significant difference",
    "not run": "not run",
}
#: Bits per byte that the paper's table 1 shows, of tokens of some four bytes.
PAPER_EFFECT = math.log2(8.95 / 8.88) / 4
_REWARMED = (
    "Rewarmed: when pruning begins, the learning rate warms up again to its peak, and "
    "the optimizer keeps its state. The peak is that of the run under one cosine and "
    "was not searched again. The second curve is the paper's cosine, which after its "
    "warm-up ends higher the shorter it is: {ends}. These runs prune only after the "
    "second warm-up, while `optimizer.rewarm` prunes at once. So they cost {least:.2f} "
    'to {most:.1f}% more FLOPs than the rival of the rows "equal FLOPs", which favors '
    "them."
)
_ONE_BY_ONE = (
    "Each test is two-sided at 5% with n - 1 degrees of freedom. Detectable: the "
    "smallest true difference that such a test finds with 80% power. The paper's "
    "effect is about {effect:.3f} bits per byte, too small for {blind} of these "
    "{settings} settings. By Holm: the settings that remain significant after the "
    "correction for all settings of their row."
)


def conditions(findings):
    """What the figures of the page are, once."""
    grid = findings.grid
    middle = grid.enlargements[len(grid.enlargements) // 2]
    counts = [p.difference.count for p in findings.places() if p.difference]
    return (
        f"Bits per byte of held-out text: lower is better. A token is a byte. "
        f"{plus_minus(counts)} "
        f"{TEXT_NOTE} {size_note(grid.scale, middle)} Tokens per parameter count all "
        f"parameters of the narrow model. {ONE_CPU}"
    )


def families(places) -> dict[tuple[str, str], Tally]:
    """(way, against) to what its comparisons show together."""
    found = {
        (way, against): tally(
            p.difference for p in places if (p.way, p.against) == (way, against)
        )
        for way in RATES
        for against in AGAINST
    }
    return {key: counts for key, counts in found.items() if counts is not None}


def tallies(places):
    """The table of how many settings show something."""
    lines = [["learning rate", "compared at", "settings", "pruning worse"]]
    lines[0] += ["by Holm", "pruning better", "by Holm", "detectable"]
    for (way, against), counts in families(places).items():
        lines.append(
            [
                RATES[way],
                AGAINST[against],
                f"{counts.settings}",
                f"{counts.worse}",
                f"{counts.worse_holm}",
                f"{counts.better}",
                f"{counts.better_holm}",
                f"{counts.least:.3f}\u2013{counts.most:.3f}",
            ]
        )
    seen = [place.seen for place in places if place.seen is not None]
    blind = sum(smallest > PAPER_EFFECT for smallest in seen)
    said = _ONE_BY_ONE.format(effect=PAPER_EFFECT, blind=blind, settings=len(seen))
    return f"## How many settings show something\n\n{table(lines)}\n\n{said}"


def differences(findings):
    """The table of all places, and what is to be known of the rewarmed ones."""
    places = findings.places()
    lines = [["learning rate", "tokens per parameter", "enlarged", "compared at"]]
    lines[0] += ["pruned - scratch", "detectable", "verdict", "FLOPs", "by the law"]
    for place in places:
        gap = place.difference
        lines.append(
            [
                RATES[place.way],
                f"{place.budget}",
                f"{place.enlargement:.3g}×",
                AGAINST[place.against],
                "-" if gap is None else f"{gap.mean:+.4f}{error(gap)}",
                "-" if place.seen is None else f"{place.seen:.4f}",
                VERDICTS[place.verdict],
                "-" if place.flops is None else f"{place.flops:.3f}",
                "-" if place.predicted is None else f"{place.predicted:+.4f}",
            ]
        )
    notes = "Differences are paired by seed: negative is better for pruning. FLOPs: "
    notes += "those of the pruned run over those of its rival."
    late = [p.flops for p in places if (p.way, p.against) == (REWARMED, "flops")]
    late = [100 * (ratio - 1) for ratio in late if ratio is not None]
    if late:
        ends = _ends(findings.grid)
        notes += "\n\n" + _REWARMED.format(least=min(late), most=max(late), ends=ends)
    return f"## Pruned minus trained from scratch\n\n{table(lines)}\n\n{notes}"


def rewarmed(findings):
    """What the second warm-up changes, at each place."""
    grid = findings.grid
    lines = [["tokens per parameter", *(f"{e:.3g}×" for e in grid.enlargements)]]
    gaps = []
    for budget in grid.budgets:
        own = [findings.rewarmed(budget, e) for e in grid.enlargements]
        gaps += own
        cells = ["-" if g is None else f"{g.mean:+.4f}{error(g)}" for g in own]
        lines.append([f"{budget}", *cells])
    counts = tally(gaps)
    if counts is None:
        return ""
    return (
        f"## Rewarmed minus one cosine\n\n{table(lines)}\n\nPaired by seed, "
        "negative is better for the rewarmed run, which takes more FLOPs. Of "
        f"{counts.settings} settings it is significantly better in {counts.better} "
        f"({counts.better_holm} by Holm) and worse in {counts.worse} "
        f"({counts.worse_holm} by Holm)."
    )


def _ends(grid):
    """At which share of its peak the second curve ends, by length, in words."""
    shares = []
    for budget in grid.budgets:
        arm = Arm(kind=REWARMED, enlargement=grid.enlargements[0], budget=budget)
        rate = plan(arm.cell(1.0), grid.scale)[1].rate
        shares.append(float(rate.schedule()(rate.total - 1)) / rate.peak)
    ends, lengths = (
        ", ".join(texts)
        for texts in ((f"{100 * s:.0f}" for s in shares), map(str, grid.budgets))
    )
    return f"at {ends}% of the peak for {lengths} tokens per parameter"


def error(value):
    """An estimate's error in text; empty if one seed alone is known."""
    return "" if value.error is None else f" ± {value.error:.4f}"


def table(lines):
    """A Markdown table, without a last empty line."""
    return markdown_table(lines).rstrip()
