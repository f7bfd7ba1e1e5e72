"""The plot of a run: learning rate, width and loss over its steps."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_idea._lm.report.curves import Curve
from keras_idea._validation import plural, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _MUTED, _GRID, _FRAME = "#1f2933", "#7b8794", "#e4e7eb", "#cbd2d9"
# Distinct in hue and in lightness.
_COLORS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")
_STAGES = {"wide": "#ffffff", "pruning": "#fff3d6", "recovery": "#e6f7ee"}
_HEADS = _COLORS[3]


def draw_run(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    stages: Sequence[tuple[str, int, int]],
    rate: Callable[[np.ndarray], Any],
    narrowings: Sequence[int] = (),
    title: str = "",
    teacher: float | None = None,
) -> None:
    """Draws a run as a PNG, 1200 pixels wide."""
    # A Figure of its own: nothing of pyplot's global state is touched.
    agg = require("matplotlib.backends.backend_agg", "A picture", "cli")
    figures = require("matplotlib.figure", "A picture", "cli")
    picture = figures.Figure(figsize=(12, 8.5), dpi=100, layout="constrained")
    agg.FigureCanvasAgg(picture)
    picture.suptitle(title, x=0.012, ha="left", fontsize=15, color=_INK)
    axes = picture.subplots(3, 1, sharex=True, height_ratios=[1, 1, 2.6])
    total = stages[-1][2]
    steps = np.arange(total)
    rates = keras.ops.convert_to_numpy(rate(steps))
    axes[0].plot(steps + 1, rates, color=_COLORS[2], linewidth=2)
    axes[0].set_ylabel("learning rate")
    axes[0].set_ylim(bottom=0)
    _draw_width(axes[1], curves[0])
    _draw_loss(axes[2], curves, teacher)
    axes[2].set_xlabel("optimizer steps")
    for axis in axes:
        _style(axis)
        axis.set_xlim(0, total)
        for name, first, last in stages:
            axis.axvspan(first, last, color=_STAGES[name], zorder=-2, linewidth=0)
        for step in narrowings:
            axis.axvline(step, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    _label_stages(axes[0], stages)
    picture.savefig(path, format="png")


def _style(axis: "Axes") -> None:
    """Makes the ticks quiet, with a grid behind and no frame above and at the right."""
    axis.tick_params(colors=_MUTED, labelsize=10)
    axis.xaxis.label.set_color(_INK)
    axis.yaxis.label.set_color(_INK)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(_FRAME)
    axis.grid(axis="y", color=_GRID, linewidth=0.8)


def _label_stages(axis: "Axes", stages: Sequence[tuple[str, int, int]]) -> None:
    """Names each stage above the plot, if there is room."""
    pixels = axis.bbox.width / stages[-1][2]
    for name, first, last in stages:
        for text in (f"{name}: {plural(last - first, 'step')}", name):
            label = axis.annotate(
                text,
                ((first + last) / 2, 1.04),
                xycoords=("data", "axes fraction"),
                ha="center",
                color=_MUTED,
                fontsize=11,
            )
            if label.get_window_extent().width < pixels * (last - first):
                break
            label.remove()


def _draw_width(axis: "Axes", curve: Curve) -> None:
    """The FFN width; heads on an axis of their own at the right."""
    _draw_units(axis, curve, "width", "FFN width", _COLORS[0])
    if "kv_groups" in curve.columns:
        right = axis.twinx()
        right.spines[:].set_visible(False)
        _draw_units(right, curve, "kv_groups", "KV heads", _HEADS)
        right.yaxis.label.set_color(_HEADS)


def _draw_units(
    axis: "Axes", curve: Curve, column: str, label: str, color: str
) -> None:
    steps, units = curve.points(column)
    steps, units = [0, *steps], [units[0], *units]
    axis.plot(steps, units, color=color, linewidth=2)
    axis.fill_between(steps, units, color=color, alpha=0.12, linewidth=0)
    axis.set_yticks(sorted({0, round(units[0]), round(units[-1])}))
    axis.set_ylim(0, 1.08 * units[0])
    axis.set_ylabel(label)


def _draw_loss(axis: "Axes", curves: Sequence[Curve], teacher: float | None) -> None:
    """Lines of training and points of validations, in bits per byte."""
    late: list[float] = []
    for curve, color in zip(curves, _COLORS, strict=False):
        steps, train = curve.points("bits_per_byte")
        held_out = curve.columns["validation"]
        label = f"{curve.name}: {held_out[-1]:.3f} on held-out text"
        axis.plot(steps, train, color=color, linewidth=1.6, alpha=0.6)
        axis.plot(steps, held_out, "o", color=color, mec="white", label=label)
        # The losses of the first epochs are far above the rest.
        skipped = -(-len(steps) // 10)
        late += [v for column in (train, held_out) for v in column[skipped:] or column]
    if teacher is not None:
        label = f"teacher: {teacher:.3f}"
        axis.axhline(teacher, color=_INK, linestyle=":", label=label)
        late.append(teacher)
    known = [value for value in late if np.isfinite(value)] or [0.0]
    low, span = min(known), max(max(known) - min(known), 0.1)
    axis.set_ylim(low - 0.1 * span, low + 1.1 * span)
    axis.set_ylabel("bits per byte")
    axis.legend(fontsize=10.5, loc="upper right", frameon=False)
