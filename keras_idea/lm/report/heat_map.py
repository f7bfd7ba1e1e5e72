"""The heat maps of a run: which neurons were active when, and how important."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_idea.callbacks.monitor.bands import Band
from keras_idea.plot import INK, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACTIVE = "#9ccfc9"
_PRUNED = "#eceef0"
_RANKS: dict[str, Any] = {"cmap": "YlGnBu", "vmin": -0.1, "vmax": 1.0}
# Of all heat maps together, in units of the panels and in rows of cells.
_HEIGHT, _ROWS = 2.6, 640


def map_heights(shown: Sequence[Band]) -> list[float]:
    """The height of each heat map, in units of the panels; a short one without any."""
    whole = sum(band.height for band in shown)
    return [_HEIGHT * band.height / whole for band in shown] or [0.6]


def draw_heat_maps(
    axes: Sequence["Axes"], shown: Sequence[Band], last_step: int
) -> None:
    """Draws the heat maps; steps go to the right.

    Neurons are sorted by the step at which they were pruned. While they are read,
    active ones are colored by their rank of importance; after that, they are active or
    pruned.
    """
    if not shown:  # nothing was read: a method that decides before the first step
        axes[0].text(
            0.5,
            0.5,
            "chosen before the first step",
            ha="center",
            va="center",
            transform=axes[0].transAxes,
        )
    for axis, band, height in zip(axes, shown, map_heights(shown), strict=False):
        _draw_map(axis, band, round(height * _ROWS / _HEIGHT), last_step)
    for axis in axes:
        axis.set_yticks([])
        dress(axis, grid=None)
    for axis in axes[:-1]:
        axis.tick_params(length=0)


def _draw_map(axis: "Axes", band: Band, most_rows: int, last_step: int) -> None:
    lives = band.lives
    rows = min(lives.levels.shape[1], most_rows)
    levels = lives.sorted_levels(rows)
    # Cells of pruned neurons are NaN and show the background.
    axis.set_facecolor(_PRUNED)
    axis.pcolormesh(
        # A cell reaches back to the reading before it.
        np.concatenate([[0.0], lives.steps]),
        np.arange(rows + 1),
        np.where(levels > 0, (levels - 1.0) / 254, np.nan),
        rasterized=True,
        **_RANKS,
    )
    # Once the model is narrow nobody is ranked any more.
    pruned = (levels[:, -1] == 0).sum()
    axis.fill_between(
        [lives.steps[-1], last_step], pruned, rows, color=_ACTIVE, linewidth=0
    )
    axis.set_ylim(rows, 0)
    # A name of a layer is no formula, whatever signs are in it.
    look: dict[str, Any] = {
        "fontsize": 10.5,
        "color": INK,
        "pad": 4,
        "parse_math": False,
    }
    axis.set_title(band.title, loc="left", **look)


def draw_key(axis: "Axes", shown: Sequence[Band]) -> None:
    """What the colors mean, on axes of their own."""
    from matplotlib.patches import Patch

    axis.axis("off")
    if not shown:
        return
    axis.legend(
        handles=[
            Patch(color=_PRUNED, label="pruned"),
            Patch(color=_ACTIVE, label="active in the narrow model"),
        ],
        loc="center left",
        ncols=2,
        frameon=False,
        fontsize=10.5,
        borderaxespad=0,
    )
    scale = axis.inset_axes((0.8, 0.3, 0.1, 0.4))
    scale.imshow(np.linspace(0, 1, 256)[None], aspect="auto", **_RANKS)
    scale.axis("off")
    for x, name, side in ((-0.1, "least important", "right"), (1.1, "most", "left")):
        scale.text(x, 0.5, name, ha=side, va="center", transform=scale.transAxes)
