"""What the map and the studies beside it show, as blocks of pages."""

import functools
from collections.abc import Callable

from benchmarks.intervals import (
    Estimate,
    estimate,
    holm,
    p_value,
    plus_minus,
    tally,
)
from benchmarks.pages.studies import map_findings
from benchmarks.pages.words import NEITHER, signed, span, table, verdict
from benchmarks.paper import shares
from benchmarks.paper.map.arms import IDEA, REWARMED, SAME_TOKENS, WIDE, Arm
from benchmarks.paper.map.compared import PAPER_EFFECT, conditions, families
from benchmarks.paper.map.sizes import parameters
from benchmarks.paper.records import RESULTS, Recorded

#: Of the map; the enlargement that the README shows.
MIDDLE = 8 / 3
#: Tokens per parameter of the paper's main model: 2T of 1.3B.
PAPER_BUDGET = 2e12 / 1.3e9


@functools.cache
def findings():
    """What the cells of the map say, read once."""
    return map_findings()


@functools.cache
def places() -> dict:
    """(way, against, budget, enlargement) to `Place`."""
    return {
        (place.way, place.against, place.budget, place.enlargement): place
        for place in findings().places()
    }


@functools.cache
def share_facts() -> list[dict]:
    """All comparisons of the study of the shares."""
    return shares.facts_of(shares.STUDY, Recorded(RESULTS / "shares/cells"))


def share_gap(budget, share, against) -> Estimate:
    """A share minus what it is compared with."""
    [fact] = [
        fact
        for fact in share_facts()
        if (fact["budget"], fact["share"], fact["against"]) == (budget, share, against)
    ]
    return Estimate(fact["mean"], fact["error"], fact["count"])


def tallies():
    """(way, against) to `Tally`."""
    return families(list(places().values()))


def lost() -> str:
    """The bullet of the equal FLOPs."""
    count = tallies()[IDEA, "flops"]
    gaps = [p.difference.mean for k, p in places().items() if k[:2] == (IDEA, "flops")]
    return (
        "- **At equal FLOPs, pruning one small model did not pay.** Training the "
        f"narrow model from scratch gave a lower loss in {count.worse} of "
        f"{count.settings} settings ({count.worse_holm} after Holm's correction), by "
        f"{span(gaps)} bits per byte over all of them."
    )


def unseen() -> str:
    """The bullet of the equal tokens."""
    count = tallies()[IDEA, "tokens"]
    own = [p for key, p in places().items() if key[:2] == (IDEA, "tokens")]
    silent = [p.seen for p in own if p.verdict == "not told apart"]
    return (
        "- **At equal tokens we saw no gain.** Pruning was worse in "
        f"{count.worse} of {count.settings} settings ({count.worse_holm} after Holm's "
        "correction): long runs that stay wide for half of their steps. The other "
        f"{len(silent)} show no significant difference, but the smallest difference "
        f"that they could detect is {span(silent)} bits, and the paper's gain is about "
        f"{PAPER_EFFECT:.3f}."
    )


def said_of_conditions() -> str:
    """What all figures of the map are."""
    return conditions(findings())


def differences() -> str:
    """All places under one cosine, a line a length."""
    grid = findings().grid
    sizes = [f"{e:.3g}×" for e in grid.enlargements]
    lines = [["tokens per parameter"]]
    for against in ("tokens", "FLOPs"):
        lines[0] += [f"equal {against}, {size}" for size in sizes]
    passed = {
        key for against in ("tokens", "flops") for key in _significant(IDEA, against)
    }
    for budget in grid.budgets:
        line = [f"{budget}"]
        for against in ("tokens", "flops"):
            for enlargement in grid.enlargements:
                key = (IDEA, against, budget, enlargement)
                gap = places()[key].difference
                alone = verdict(gap) != NEITHER
                mark = "**" if key in passed else "*" if alone else ""
                line.append(f"{mark}{signed(gap)}{mark}")
        lines.append(line)
    return (
        f"{table(lines)}\n\nPruned minus trained from scratch, bits per byte, paired "
        "by seed: negative is better for pruning. *Italic*: significant at 5% in a "
        "test for itself. **Bold**: significant after Holm's correction for the "
        f"{len(grid.budgets) * len(grid.enlargements)} settings of its kind."
    )


def _significant(way, against) -> set:
    own = {k: p for k, p in places().items() if k[:2] == (way, against)}
    corrected = holm([p_value(p.difference) for p in own.values()])
    return {key for key, p in zip(own, corrected, strict=True) if p < 0.05}


def wide_models() -> str:
    """How much better the wide model is that nothing stays of."""
    budget, enlargement = 90, findings().grid.enlargements[-1]
    wide, narrow = (
        findings().bits(Arm(kind=kind, enlargement=e, budget=budget))
        for kind, e in ((WIDE, enlargement), (SAME_TOKENS, 1.0))
    )
    gap = estimate(wide[seed] - narrow[seed] for seed in wide.keys() & narrow.keys())
    return (
        f"The wide model itself is far better ({signed(gap)} bits at {budget} tokens "
        f"per parameter and {enlargement:.3g}×, n = {gap.count}), but nothing of that "
        "remains after pruning."
    )


def readme_table() -> str:
    """The README's table: one enlargement."""
    lines = [["tokens per parameter", "equal tokens", "equal tokens, rewarmed"]]
    lines[0].append("equal FLOPs")
    columns = ((IDEA, "tokens"), (REWARMED, "tokens"), (IDEA, "flops"))
    for budget in findings().grid.budgets:
        gaps = [places()[way, a, budget, MIDDLE].difference for way, a in columns]
        lines.append([f"{budget}", *(signed(gap) for gap in gaps)])
    return table(lines)


def readme_conditions() -> str:
    """What the README's table is, in short."""
    grid = findings().grid
    counts = [place.difference.count for place in places().values()]
    narrow = parameters(grid.scale, grid.scale.target_dim)
    return (
        f"Models of {narrow:,} parameters, tokens that are bytes. {plus_minus(counts)} "
        "Rewarmed: the learning rate warms up a second time when pruning begins."
    )


def rewarmed() -> str:
    """What a second warm-up gives back, where one cosine loses at equal tokens."""
    lines = [["tokens per parameter", "enlarged", "one cosine minus scratch"]]
    lines[0] += ["rewarmed minus one cosine", "share taken back"]
    for (way, against, budget, enlargement), place in places().items():
        if (way, against) != (IDEA, "tokens") or place.verdict != "loses":
            continue
        back = findings().rewarmed(budget, enlargement)
        lines.append(
            [
                f"{budget}",
                f"{enlargement:.3g}×",
                signed(place.difference),
                signed(back),
                f"{-back.mean / place.difference.mean:.0%}",
            ]
        )
    return table(lines)


def rewarmed_everywhere() -> str:
    """How often a second warm-up helps, and what it costs."""
    grid = findings().grid
    gaps = [findings().rewarmed(b, e) for b in grid.budgets for e in grid.enlargements]
    count, against = tally(gaps), tallies()[REWARMED, "flops"]
    more = [
        100 * (p.flops - 1)
        for key, p in places().items()
        if key[:2] == (REWARMED, "flops")
    ]
    return (
        f"Over all {count.settings} settings of the map, rewarming is significantly "
        f"better than one cosine in {count.better} ({count.better_holm} after Holm's "
        f"correction) and worse in {count.worse} ({count.worse_holm}). It does not "
        f"change the comparison at equal FLOPs: pruning is worse in {against.worse} of "
        f"{against.settings} settings ({against.worse_holm} after Holm's correction), "
        f"although these rewarmed runs cost {min(more):.2f} to {max(more):.1f}% more "
        "FLOPs than their rivals. They prune only after the second warm-up; "
        "`optimizer.rewarm` prunes at once and was not measured."
    )


def how_long_wide() -> str:
    """The study of the shares, in one table."""
    study = shares.STUDY
    header = ["tokens per parameter"]
    header += [f"{s:.0%} minus {shares.USUAL:.0%}" for s in study.shares[:-1]]
    lines = [[*header, "the best minus scratch, equal tokens", "equal FLOPs"]]
    for budget in study.peaks:
        best = min(study.shares, key=lambda s: share_gap(budget, s, "tokens").mean)
        against = [share_gap(budget, best, rival) for rival in ("tokens", "flops")]
        halves = [signed(share_gap(budget, s, "half")) for s in study.shares[:-1]]
        tokens, flops = (signed(gap) for gap in against)
        lines.append([f"{budget}", *halves, f"{tokens} ({best:.0%})", flops])
    return table(lines)


def the_one_win() -> str:
    """The longest run with the shortest wide stage, corrected for all shares."""
    facts = [fact for fact in share_facts() if fact["against"] == "tokens"]
    gaps = [Estimate(f["mean"], f["error"], f["count"]) for f in facts]
    corrected = holm([p_value(gap) for gap in gaps])
    at = min(range(len(facts)), key=lambda i: (-facts[i]["budget"], gaps[i].mean))
    gap, budgets = gaps[at], findings().grid.budgets
    return (
        f"The best share is chosen in hindsight. At {facts[at]['budget']} tokens per "
        f"parameter with {facts[at]['share']:.0%} of the steps wide, pruning is at "
        f"{signed(gap)} at equal tokens: p = {p_value(gap):.3f} in a test for itself, "
        f"and {corrected[at]:.2f} after Holm's correction for the {len(facts)} "
        "settings of this study. The paper's own regime, "
        f"{PAPER_BUDGET:,.0f} tokens per parameter, lies outside the map "
        f"({budgets[0]} to {budgets[-1]})."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "conditions": said_of_conditions,
    "differences": differences,
    "wide-models": wide_models,
    "readme-table": readme_table,
    "readme-conditions": readme_conditions,
    "rewarmed": lambda: f"{rewarmed()}\n\n{rewarmed_everywhere()}",
    "how-long-wide": lambda: f"{how_long_wide()}\n\n{the_one_win()}",
}
