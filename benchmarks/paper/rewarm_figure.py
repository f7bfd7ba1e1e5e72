"""The plot of the study of the rewarmed learning rate."""

import dataclasses

from keras_idea.plot import COLORS, INK, MUTED, dress, figure


def draw(path, study, found, ways) -> None:
    """Draws differences over the length of training, the peak and the wide stage.

    Args:
        path: path of the PNG.
        study: `Study`.
        found: dict of `Place` to dict of a way to `Estimate` or None.
        ways: the ways' names, in their order.
    """
    title = "Rewarmed minus resumed, bits per byte (negative: rewarming is better)"
    size = dict(nrows=1, ncols=3, sharey=True)
    with figure(path, 14, 4.6, title, **size) as (lengths, peaks, shares):
        at, full = study.middle, "rewarmed to 100 %"
        for enlargement, color in zip(study.enlargements, COLORS, strict=False):
            own = [
                dataclasses.replace(at, budget=budget, enlargement=enlargement)
                for budget in study.budgets
            ]
            gaps = [found[place][full] for place in own]
            _line(lengths, study.budgets, gaps, f"{enlargement:.3g}×", color)
        for name, color in zip(ways, COLORS, strict=False):
            rates = [peak * study.scale.peak_learning_rate for peak in study.peaks]
            own = [dataclasses.replace(at, peak=peak) for peak in study.peaks]
            _line(peaks, rates, [found[place][name] for place in own], name, color)
            own = [dataclasses.replace(at, enlarge_share=s) for s in study.shares]
            gaps = [found[place][name] for place in own]
            _line(shares, study.shares, gaps, name, color)
        where = f"{at.budget} tokens per parameter, {at.enlargement:.3g}×"
        _dress(lengths, f"{full}, by enlargement", "tokens per parameter", log=True)
        _dress(peaks, where, "peak learning rate", log=True)
        _dress(shares, where, "share of the steps before pruning")


def _line(axis, x, gaps, name, color):
    known = [(x, gap) for x, gap in zip(x, gaps, strict=True) if gap is not None]
    axis.errorbar(
        [x for x, _ in known],
        [gap.mean for _, gap in known],
        [gap.error or 0.0 for _, gap in known],
        color=color,
        marker="o",
        markersize=4,
        capsize=2,
        label=name,
    )


def _dress(axis, title, label, log=False):
    dress(axis)
    axis.axhline(0.0, color=MUTED, linewidth=1)
    if log:
        axis.set_xscale("log")
        ticks = sorted({x for line in axis.containers for x in line[0].get_xdata()})
        axis.set_xticks(ticks, [f"{x:.3g}" for x in ticks])
        axis.minorticks_off()
    axis.set_title(title, fontsize=10, color=INK, loc="left")
    axis.set_xlabel(label)
    axis.legend(frameon=False, fontsize=8)
