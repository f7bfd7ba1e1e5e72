"""The plot of the map: where pruning is better, and where the law changes sign."""

import numpy as np

from benchmarks.paper.map.arms import IDEA, REWARMED
from benchmarks.paper.map.compared import VERDICTS
from keras_idea.plot import INK, MUTED, dress, figure

_SHOWN = {
    "wins": ("#2b8a3e", "o"),
    "loses": ("#c2255c", "X"),
    "not told apart": ("#adb5bd", "s"),
}
_WAYS = {IDEA: "one cosine", REWARMED: "rewarmed"}
_TITLES = {
    "tokens": "against scratch at equal tokens",
    "flops": "against scratch at equal FLOPs",
}


def draw_map(path, grid, places, lawful: bool) -> None:
    """Draws both panels.

    Args:
        path: path of the PNG.
        grid: `Grid`.
        places: list of `Place`.
        lawful: bool, whether the law's change of sign is drawn.
    """
    title = "Pruning while pretraining minus training from scratch, bits per byte"
    size = dict(nrows=len(_WAYS), ncols=len(_TITLES), sharey=True)
    with figure(path, 12, 9, title, **size) as rows:
        for axes, (way, rate) in zip(rows, _WAYS.items(), strict=True):
            for axis, (against, said) in zip(axes, _TITLES.items(), strict=True):
                own = [p for p in places if (p.against, p.way) == (against, way)]
                _panel(axis, grid, own)
                if lawful:
                    _turn(axis, grid, own)
                axis.set_title(f"{rate}, {said}", fontsize=11, color=INK, loc="left")
            axes[0].set_ylabel("FFN enlargement, ×")
        for axis in rows[-1]:
            axis.set_xlabel("tokens per parameter of the narrow model")
        axes = rows[0]
        handles = [
            axes[1].plot([], [], marker, color=color, label=VERDICTS[what])[0]
            for what, (color, marker) in _SHOWN.items()
        ]
        axes[1].legend(
            handles=handles, loc="upper left", frameon=False, fontsize=9, ncols=3
        )


def _panel(axis, grid, places):
    budgets, sizes = grid.budgets, grid.enlargements
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(budgets, [str(budget) for budget in budgets])
    axis.set_yticks(sizes, [f"{e:.3g}" for e in sizes])
    axis.minorticks_off()
    axis.set_xlim(budgets[0] / 1.6, budgets[-1] * 1.6)
    axis.set_ylim(sizes[0] / 1.25, sizes[-1] * 1.35)
    dress(axis, grid=None)
    for place in places:
        if place.verdict not in _SHOWN:
            continue
        color, marker = _SHOWN[place.verdict]
        at = (place.budget, place.enlargement)
        axis.plot(*at, marker, color=color, markersize=13)
        gap = place.difference
        axis.annotate(
            f"{gap.mean:+.3f}\n± {gap.error:.3f}",
            at,
            xytext=(0, -12),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color=INK,
        )


def _turn(axis, grid, places):
    """Where the law's prediction changes its sign, between places."""
    by_place = {(p.budget, p.enlargement): p.predicted for p in places}
    points = []
    for enlargement in grid.enlargements:
        known = np.array([by_place[budget, enlargement] for budget in grid.budgets])
        for i in np.flatnonzero(np.sign(known[:-1]) != np.sign(known[1:])):
            share = known[i] / (known[i] - known[i + 1])
            low, high = np.log(grid.budgets[i]), np.log(grid.budgets[i + 1])
            points.append((np.exp(low + share * (high - low)), enlargement))
    if points:
        axis.plot(
            *zip(*points, strict=True), color=MUTED, linestyle="--", linewidth=1.5
        )
        axis.annotate(
            "the law changes sign",
            points[-1],
            xytext=(0, 9),  # above the marks of places
            textcoords="offset points",
            ha="center",
            color=MUTED,
            fontsize=9,
        )
