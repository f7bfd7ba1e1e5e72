"""The picture: loss and width by step of each peer, small shape."""

import matplotlib.figure
import numpy as np

from benchmarks.peers.registry import PEERS

SHAPE = "small"
WINDOW = 5
COLUMNS = 4
TOP = 3.6


def draw(results, path):
    """Draws one small picture a peer: its losses above, its widths below.

    Args:
        results: dict of peer to dict of shape to what the peer's script wrote.
        path: where the PNG goes.
    """
    drawn = {
        PEERS[name].title + PEERS[name].variant: found[SHAPE]
        for name, found in results.items()
        if "rows" in found.get(SHAPE, {})
    }
    if not drawn:
        return
    bands = -(-len(drawn) // COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(4 * COLUMNS, 4.2 * bands))
    figure.set_layout_engine("constrained")
    axes = figure.subplots(
        2 * bands, COLUMNS, sharex=True, sharey="row", height_ratios=[2, 1] * bands
    )
    for index, (title, result) in enumerate(drawn.items()):
        band, column = divmod(index, COLUMNS)
        _draw_peer(axes[2 * band : 2 * band + 2, column], title, result)
    for index in range(len(drawn), bands * COLUMNS):
        for axis in axes[2 * (index // COLUMNS) :, index % COLUMNS]:
            axis.axis("off")
    figure.savefig(path, dpi=110)


def _draw_peer(axes, title, result):
    """One peer's ways, and its plain wide and narrow models."""
    above, below = axes
    for name, style in (("wide", "-"), ("narrow", ":")):
        _draw_run(axes, result["plain"][name], f"plain {name}", "0.6", style)
    rows = {k: row for k, row in result["rows"].items() if "losses" in row}
    for index, (label, row) in enumerate(rows.items()):
        _draw_run(axes, row, label, f"C{index}", "-")
    shape = result["shape"]
    for axis in axes:
        axis.axvline(shape["enlarge_steps"], color="0.85", zorder=0)
        end_step = shape["enlarge_steps"] + shape["prune_steps"]
        axis.axvline(end_step, color="0.85", zorder=0)
    above.set_title(title)
    above.set_ylim(top=TOP)
    above.set_ylabel("loss")
    above.legend(fontsize=7, frameon=False)
    below.set_ylim(0, 1.08 * shape["hidden_dim"])
    below.set_ylabel("neurons in the arrays", fontsize=8)
    below.set_xlabel("step")


def _draw_run(axes, run, label, color, style):
    """A run's losses, smoothed over a few steps, and its widths."""
    losses = np.convolve(run["losses"], np.ones(WINDOW) / WINDOW, mode="valid")
    steps = np.arange(WINDOW, len(run["losses"]) + 1)
    axes[0].plot(steps, losses, style, color=color, label=label, linewidth=1)
    widths = run["widths by step"]
    axes[1].step(range(1, len(widths) + 1), widths, style, color=color, linewidth=1)
