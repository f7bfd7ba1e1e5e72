"""Axes and colours that the pictures of runs and the paper's figures share."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from keras_idea._validation import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
# Distinct in hue and in lightness.
COLORS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")


@contextlib.contextmanager
def figure(
    path: str | os.PathLike | BinaryIO,
    width: float,
    height: float,
    title: str,
    title_size: float = 14,
    **subplots: Any,
) -> Iterator[Any]:
    """A figure that is saved when the block ends; yields its axes.

    Args:
        path: path of the PNG, or a binary file.
        width: float, in hundreds of pixels; as `height`.
        height: float.
        title: str, above all.
        title_size: float, in points.
        **subplots: arguments of `Figure.subplots`, and nrows, ncols.
    """
    # A Figure of its own: nothing of pyplot's global state is touched.
    agg = require("matplotlib.backends.backend_agg", "A picture", "cli")
    figures = require("matplotlib.figure", "A picture", "cli")
    picture = figures.Figure(figsize=(width, height), dpi=100, layout="constrained")
    agg.FigureCanvasAgg(picture)
    picture.suptitle(title, x=0.012, ha="left", fontsize=title_size, color=INK)
    yield picture.subplots(**subplots)
    picture.savefig(path, format="png")


def dress(axis: "Axes", grid: Literal["x", "y"] | None = "y") -> None:
    """Quiet ticks, no frame above and to the right, a grid behind."""
    axis.tick_params(colors=MUTED, labelsize=10)
    axis.xaxis.label.set_color(INK)
    axis.yaxis.label.set_color(INK)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color("#cbd2d9")
    if grid:
        axis.grid(axis=grid, color=GRID, linewidth=0.8)
