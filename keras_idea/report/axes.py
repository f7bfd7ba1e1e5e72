"""Axes and colours that the paper's figures share."""

import contextlib

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
# Distinct in hue and in lightness.
COLORS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")


@contextlib.contextmanager
def figure(path, width, height, title, **subplots):
    """A figure that is saved when the block ends.

    Args:
        path: path of the PNG.
        width: float, in hundreds of pixels.
        height: float, in hundreds of pixels.
        title: str, above all.
        **subplots: arguments of `Figure.subplots`, and nrows, ncols.

    Yields:
        The axes, as `Figure.subplots` gives them.
    """
    # A Figure of its own: nothing of pyplot's global state is touched.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(picture)
    picture.suptitle(title, x=0.012, ha="left", fontsize=14, color=INK)
    yield picture.subplots(**subplots)
    picture.savefig(path, format="png")


def dress(axis, grid="y"):
    """Quiet ticks, no frame above and to the right, a grid behind.

    Args:
        axis: matplotlib axis.
        grid: "x", "y" or None.
    """
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
