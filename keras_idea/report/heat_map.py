"""The heat map of a run: which neurons lived when, and how important they were."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_idea.report.neuron_lives import NeuronLives

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

_ALIVE = "#9ccfc9"
_DEAD = "#eceef0"


def draw_neurons(axis: "Axes", neurons: Sequence[NeuronLives], last_step: int) -> None:
    """Draws the neurons, or heads, of every layer, sorted by their pruning step.

    While they are read, the living are coloured by their rank of importance
    among the living; after that they are dead or alive. Steps go to the right.
    """
    if not neurons:  # nobody ranked them: a method that decides before the first step
        axis.text(0.5, 0.5, "nothing was ranked", ha="center", va="center")
        axis.set_yticks([])
        return
    # Cells of the dead are NaN and show the background.
    axis.set_facecolor(_DEAD)
    rows = max(8, 640 // max(1, len(neurons)))
    top, middles = 0.0, []
    for lives in neurons:
        cells = _heat_map(lives, rows)
        # A layer of few heads is to be seen beside one of many neurons.
        height = max(1.0, rows / 3 / len(cells))
        survivors = height * np.isfinite(cells[:, -1]).sum()
        middles.append(top + height * len(cells) / 2)
        mesh = axis.pcolormesh(
            # A cell reaches back to the reading before it.
            np.concatenate([[0.0], lives.steps]),
            height * np.arange(len(cells) + 1) + top,
            cells,
            cmap="YlGnBu",
            vmin=-0.1,
            vmax=1.0,
            rasterized=True,
        )
        # Once the model is narrow nobody is ranked any more: dead or alive.
        top += height * len(cells)
        axis.fill_between(
            [lives.steps[-1], last_step], top - survivors, top, color=_ALIVE
        )
        axis.axhline(top, color="white", linewidth=3)
    axis.set_yticks(middles, [lives.layer for lives in neurons], rotation=90)
    for label in axis.get_yticklabels():
        label.set_verticalalignment("center")
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(top, 0)
    axis.set_ylabel("neurons or heads,\nsorted by pruning step")
    _draw_key(axis, mesh)


def _draw_key(axis: "Axes", mesh: "QuadMesh") -> None:
    """The colours' meaning, below the heat map."""
    from matplotlib.patches import Patch

    axis.legend(
        handles=[
            Patch(color=_DEAD, label="pruned"),
            Patch(color=_ALIVE, label="active in the narrow model"),
        ],
        loc="upper left",
        bbox_to_anchor=(0, -0.1),
        ncols=2,
        frameon=False,
        fontsize=10.5,
        borderaxespad=0,
    )
    scale = axis.inset_axes((0.8, -0.15, 0.1, 0.03))
    bar = axis.figure.colorbar(mesh, cax=scale, orientation="horizontal")
    scale.set_xlim(0, 1)
    scale.set_xticks([])
    bar.outline.set_visible(False)
    for x, name, side in ((-0.1, "least important", "right"), (1.1, "most", "left")):
        scale.text(x, 0.5, name, ha=side, va="center", transform=scale.transAxes)


def _heat_map(lives: NeuronLives, max_rows: int) -> np.ndarray:
    """Ranks `(rows, readings)` in [0, 1], first to die on top; NaN: dead."""
    levels = lives.sorted_levels(min(max_rows, lives.levels.shape[1]))
    return np.where(levels > 0, (levels - 1.0) / 254, np.nan)
