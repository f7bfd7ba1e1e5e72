"""The paper's claims beside what is seen here, as blocks of pages."""

from collections.abc import Callable

from benchmarks.intervals import Estimate, detectable
from benchmarks.pages.of_map import MIDDLE, PAPER_BUDGET, places, regime_gap, share_gap
from benchmarks.pages.of_tables import (
    BASE,
    FROM_DOCS,
    SIZES,
    gap,
    recorded_table,
    size,
)
from benchmarks.pages.words import NEITHER, WORSE, plain, signed, span, table, verdict
from benchmarks.paper import regime
from benchmarks.paper.map.arms import IDEA as PRUNED
from benchmarks.paper.map.compared import PAPER_EFFECT
from benchmarks.paper.map.sizes import parameters
from benchmarks.paper.methods import METHODS
from benchmarks.paper.tables import IDEA, SAME_TOKENS


def _said(estimate: Estimate) -> str:
    return f"{signed(estimate, 4)}, {verdict(estimate)}"


def _methods() -> dict[str, Estimate]:
    """Label of a method to integrated minus naive."""
    labels = [method.label for method in METHODS.values()]
    return {x: gap(3, f"{x}, integrated", f"{x}, naive") for x in labels}


def naive() -> str:
    """The naive pipelines and the integrated one, method by method."""
    lines = [["method", "naive pipeline", "integrated", "difference", "verdict"]]
    for label, difference in _methods().items():
        pair = [
            recorded_table(3).mean(f"{label}, {way}") for way in ("naive", "integrated")
        ]
        cells = [plain(mean, 4) for mean in pair]
        lines.append([label, *cells, signed(difference, 4), verdict(difference)])
    return table(lines)


def naive_and_scratch() -> str:
    """The same scale beside training from scratch."""
    same = gap(1, IDEA, SAME_TOKENS)
    flops = gap(1, IDEA, "from scratch, the same FLOPs")
    return (
        f"IDEA minus the scratch baseline, at equal tokens: {_said(same)} (detectable: "
        f"{detectable(same):.3f}). At equal FLOPs: {_said(flops)}. The learning rates "
        "of the naive pipelines were not searched."
    )


def _of_scratch() -> str:
    scratch = gap(1, IDEA, SAME_TOKENS)
    return (
        f"**not seen**: {signed(scratch, 4)}; detectable: {detectable(scratch):.3f}, "
        f"the paper's effect: about {PAPER_EFFECT:.3f}"
    )


def _of_naive() -> str:
    labels = ("random", "activation", "learned mask")
    rows = [f"{label}, naive" for label in labels]
    best = min(rows, key=lambda row: recorded_table(1).mean(row).mean)
    return (
        f"holds: {signed(gap(1, IDEA, best), 4)}; the learning rates of the naive "
        "pipeline were not searched"
    )


def _of_restarts() -> str:
    rows = (f"pruned from intermediate, {way}" for way in ("restarted", "resumed"))
    return f"**contradicted**: restarted minus resumed is {signed(gap(2, *rows), 4)}"


def _of_decay() -> str:
    rows = (f"pruned from {which}, resumed" for which in ("decayed", "intermediate"))
    return f"holds: decayed minus intermediate is {signed(gap(2, *rows), 4)}"


def _of_methods() -> str:
    helped = [label for label, x in _methods().items() if verdict(x) == "better"]
    silent = [label for label, x in _methods().items() if verdict(x) == NEITHER]
    return (
        f"holds for {', '.join(helped)} "
        f"({span([_methods()[x].mean for x in helped], 4)}); no significant "
        f"difference for {', '.join(silent)}"
    )


def _of_distillation() -> str:
    rival = "pruning without distillation"
    taught = gap(4, "pruning with distillation", rival)
    alone = gap(4, "from scratch with distillation, half the tokens", rival)
    return f"holds: {signed(alone, 4)} alone, {signed(taught, 4)} together"


def _of_enlargement() -> str:
    sizes = {ratio: size(ratio) for ratio in SIZES}
    worse = [ratio for ratio, x in sizes.items() if verdict(x) == WORSE]
    assert {verdict(x) for r, x in sizes.items() if r not in worse} == {NEITHER}
    return (
        f"**contradicted**: none does; {', '.join(worse)}× is worse by "
        f"{signed(sizes[worse[-1]], 4)}"
    )


def _of_prune_share() -> str:
    soon, late = (
        gap(6, f"enlarged 50%, pruning {share} of the rest", BASE)
        for share in ("10%", "70%")
    )
    return (
        f"**contradicted**: 70% minus 50% is {signed(late, 4)}; 10% minus 50% is "
        f"{signed(soon, 4)}"
    )


def _of_reductions() -> str:
    pairs = (("mean", "mean"), ("max", "max"), ("max", "mean"))
    names = [f"f1 = {row}, f2 = {matrix}" for row, matrix in pairs]
    names += [f"lambda = {x}" for x in (0.3, 0.5, 0.8)]
    found = [gap(6, name, BASE) for name in names]
    assert {verdict(x) for x in found} == {NEITHER}
    return (
        "not seen: no significant difference between any of them "
        f"({span([x.mean for x in found], 4)})"
    )


#: Table of the paper, its claim, what is seen here, and the page that shows it.
_CLAIMS: tuple[tuple[str, str, Callable[[], str], str], ...] = (
    (
        "1",
        "IDEA beats training from scratch at equal tokens (8.88 vs. 8.95)",
        _of_scratch,
        "tiny-table-1",
    ),
    (
        "1",
        "IDEA beats the best naive pipeline (8.88 vs. 8.96)",
        _of_naive,
        "tiny-table-1",
    ),
    (
        "2",
        "a resumed learning rate beats a restarted one (8.88 vs. 8.94)",
        _of_restarts,
        "tiny-table-2",
    ),
    (
        "2",
        "an intermediate checkpoint beats a decayed one (8.88 vs. 8.89)",
        _of_decay,
        "tiny-table-2",
    ),
    (
        "3",
        "every method is better in the integrated pipeline than in the naive one",
        _of_methods,
        "tiny-table-3",
    ),
    (
        "4",
        "distillation alone is worse than pruning; both together are best",
        _of_distillation,
        "mini-table-4",
    ),
    (
        "5",
        "all enlargements from 1.3 to 5.3 beat training from scratch; 2.6 is best",
        _of_enlargement,
        "mini-table-5",
    ),
    (
        "6",
        "pruning over about 70% of the steps after the wide stage is best",
        _of_prune_share,
        "mini-table-6",
    ),
    (
        "6",
        "f1 = mean with f2 = max, and a lambda of 0.3 to 0.5, are best",
        _of_reductions,
        "mini-table-6",
    ),
    (
        "1 to 3",
        "IDEA has the best MMLU (46.4; naive pipelines 31.4 to 33.4)",
        lambda: "not tested: our models are too small for such tasks",
        "",
    ),
)


def against_the_paper() -> str:
    """The paper's claims, what is seen here, and where."""
    lines = [["table", "the paper's claim", "here", "where"]]
    for number, claim, here, where in _CLAIMS:
        link = f"[{where}]({FROM_DOCS}{where}.md)" if where else "–"
        lines.append([number, claim, here(), link])
    return f"{table(lines)}\n\n{_at_the_papers_length()}"


def _at_the_papers_length() -> str:
    """What is seen at 540 tokens per parameter, and at the paper's 1,540."""
    long_run = share_gap(540, 0.1, "tokens")
    wide_half = places()[PRUNED, "tokens", 540, MIDDLE].difference
    gaps = [regime_gap(f"wide for {share}", "scratch") for share in ("10%", "50%")]
    tenth, half = (f"{signed(x, 4)} ({verdict(x)})" for x in gaps)
    narrow = parameters(regime.STUDY.scale, regime.STUDY.scale.width(1))
    least = " and ".join(f"{detectable(x):.3f}" for x in gaps)
    return (
        f"The paper prunes a model from 2.8B to 1.3B parameters and trains it on "
        f"{PAPER_BUDGET:,.0f} tokens per parameter. Our map ends at 540. There, at "
        f"equal tokens and {MIDDLE:.3g}×, pruned minus scratch baseline is "
        f"{signed(wide_half)} with half of the steps wide. With a tenth of the steps "
        f"wide, it is {signed(long_run)}. [At {regime.TOKENS:,.0f} tokens per "
        f"parameter]({FROM_DOCS}regime/regime.md), with a narrow model of "
        f"{narrow:,} parameters and "
        f"{gaps[0].count} paired seeds, it is {tenth} with a tenth of the steps wide "
        f"and {half} with half. That study could detect {least} bits. The paper's "
        "gain, from a perplexity of 8.95 to one of 8.88, is about "
        f"{PAPER_EFFECT:.3f} bits per byte if a token has four bytes."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "naive": lambda: f"{naive()}\n\n{naive_and_scratch()}",
    "against-the-paper": against_the_paper,
}
