"""What the map and the studies beside it show, as blocks of pages."""

import dataclasses
import functools
from collections.abc import Callable

from benchmarks.intervals import (
    Estimate,
    estimate,
    holm,
    p_value,
    tally,
)
from benchmarks.pages.studies import map_findings
from benchmarks.pages.words import BETTER, NEITHER, signed, span, table, verdict
from benchmarks.paper import regime, rewarm, shares
from benchmarks.paper.map.arms import IDEA, REWARMED, SAME_TOKENS, WIDE, Arm
from benchmarks.paper.map.compared import PAPER_EFFECT, conditions, families
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


def regime_gap(arm: str, rival: str) -> Estimate:
    """An arm of the study at the paper's length minus another."""
    facts = regime.STUDY.facts_of(Recorded(RESULTS / "regime/cells"))
    return Estimate(**facts["gaps"][f"{arm} minus {rival}"])


def tallies():
    """(way, against) to `Tally`."""
    return families(list(places().values()))


def lost() -> str:
    """The bullet of the equal FLOPs."""
    count = tallies()[IDEA, "flops"]
    gaps = [p.difference.mean for k, p in places().items() if k[:2] == (IDEA, "flops")]
    return (
        "- **At equal FLOPs, pruning one small model did not pay.** The scratch "
        "baseline (a narrow model trained from scratch) had a lower loss in "
        f"{count.worse} of {count.settings} settings ({count.worse_holm} after Holm's "
        f"correction). Over all {count.settings}, the gap is {span(gaps)} bits per "
        "byte."
    )


def unseen() -> str:
    """The bullet of the equal tokens."""
    count = tallies()[IDEA, "tokens"]
    own = [p for key, p in places().items() if key[:2] == (IDEA, "tokens")]
    silent = [p.seen for p in own if p.verdict == "not told apart"]
    long = regime_gap("wide for 10%", "scratch")
    assert verdict(long) == BETTER
    return (
        "- **At equal tokens, pruning with half of the steps wide showed no gain.** It "
        "was worse in "
        f"{count.worse} of {count.settings} settings ({count.worse_holm} after Holm's "
        "correction), all of them long runs. The other "
        f"{len(silent)} settings show no significant difference. The smallest "
        f"difference that they could detect is {span(silent)} bits per byte, by "
        f"setting; the paper's gain, about {PAPER_EFFECT:.3f}, is smaller. At the "
        f"paper's length, {regime.TOKENS:,.0f} tokens per parameter, with a tenth of "
        f"the steps wide, a smaller model gained {-long.mean:.4f} ± {long.error:.4f} "
        f"by pruning ({long.count} seeds)."
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
        f"{table(lines)}\n\nPruned minus scratch baseline, in bits per byte, paired "
        "by seed. Negative: pruning is better. *Italic*: significant at 5% in a single "
        "test. **Bold**: significant after Holm's correction for the "
        f"{len(grid.budgets) * len(grid.enlargements)} settings of the same comparison."
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
        "At equal tokens, the wide model itself is far better than the scratch "
        f"baseline: {signed(gap)} bits per byte at {budget} tokens per parameter and "
        f"{enlargement:.3g}× (n = {gap.count}). After pruning, nothing of this "
        "advantage remains."
    )


def rewarmed() -> str:
    """What a second warm-up regains where one cosine loses at equal tokens."""
    lines = [["tokens per parameter", "enlarged", "one cosine minus scratch baseline"]]
    lines[0] += ["rewarmed minus one cosine", "share regained"]
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
        f"In the map's {count.settings} settings, rewarming is significantly better "
        f"than one cosine in {count.better} ({count.better_holm} after Holm's "
        f"correction). It is significantly worse in {count.worse} ({count.worse_holm} "
        "after the correction). It does not change the result at equal FLOPs: pruning "
        f"is worse in {against.worse} of {against.settings} settings "
        f"({against.worse_holm} after Holm's correction). Yet these rewarmed runs cost "
        f"{min(more):.2f} to {max(more):.1f}% more FLOPs than their baselines. They "
        "prune only after the second warm-up. `optimizer.rewarm` prunes at once, for "
        "the FLOPs of one cosine. In the study below, at "
        f"{MIDDLE:.3g}×, this minus one cosine was {_pruned_at_once()}."
    )


def _pruned_at_once() -> str:
    """Differences by tokens per parameter, of the way of the shipped option."""
    cells, study = Recorded(RESULTS / "rewarm/cells"), rewarm.STUDY
    places = (dataclasses.replace(study.middle, budget=b) for b in study.budgets)
    gaps = [rewarm.differences(cells, place)[rewarm.AT_ONCE] for place in places]
    texts = (
        f"{signed(gap)} at {budget}"
        for budget, gap in zip(study.budgets, gaps, strict=True)
    )
    return f"{', '.join(texts)} tokens per parameter (n = {gaps[0].count})"


def how_long_wide() -> str:
    """The study of the shares, in one table."""
    study = shares.STUDY
    header = ["tokens per parameter"]
    header += [f"{s:.0%} minus {shares.USUAL:.0%}" for s in study.shares[:-1]]
    best_at = [f"best minus scratch baseline, equal {x}" for x in ("tokens", "FLOPs")]
    lines = [[*header, *best_at]]
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
    gap = gaps[at]
    return (
        f"The best share is chosen in hindsight. At {facts[at]['budget']} tokens per "
        f"parameter and {facts[at]['share']:.0%} of the steps wide, the difference is "
        f"{signed(gap)} at equal tokens. Its p value is {p_value(gap):.3f} in a single "
        f"test, and {corrected[at]:.2f} after Holm's correction for the {len(facts)} "
        "settings of this study."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "conditions": said_of_conditions,
    "differences": differences,
    "wide-models": wide_models,
    "rewarmed": lambda: f"{rewarmed()}\n\n{rewarmed_everywhere()}",
    "how-long-wide": lambda: f"{how_long_wide()}\n\n{the_one_win()}",
}
