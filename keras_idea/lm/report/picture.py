"""The plot of a run: learning rate, width and loss over its steps."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import keras
import numpy as np

from keras_idea.lm.report.curves import Curve
from keras_idea.plot import COLORS, INK, MUTED, dress, figure
from keras_idea.validation import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STAGES = {"wide": "#ffffff", "pruning": "#fff3d6", "recovery": "#e6f7ee"}
_HEADS = COLORS[3]


def draw_run(
    path: str | os.PathLike,
    curves: Sequence[Curve],
    stages: Sequence[tuple[str, int, int]],
    rate: Callable[[np.ndarray], Any],
    narrowings: Sequence[int] = (),
    title: str = "",
    teacher: float | None = None,
) -> None:
    """Draws a run as a PNG, 1200 pixels wide.

    Args:
        path: path of the PNG.
        curves: list of `Curve`. The pruned model first, then those it is compared with.
        stages: list of (name, first step, last step).
        rate: function of steps that returns their learning rates.
        narrowings: list of int. The steps after which the model became narrower.
        title: str. Drawn above.
        teacher: float or None. Bits per byte of the teacher.
    """
    total = stages[-1][2]
    panels = {"nrows": 3, "ncols": 1, "sharex": True, "height_ratios": [1, 1, 2.6]}
    with figure(path, 12, 8.5, title, title_size=15, **panels) as axes:
        steps = np.arange(total)
        rates = keras.ops.convert_to_numpy(rate(steps))
        axes[0].plot(steps + 1, rates, color=COLORS[2], linewidth=2)
        axes[0].set_ylabel("learning rate")
        axes[0].set_ylim(bottom=0)
        _draw_width(axes[1], curves[0])
        _draw_loss(axes[2], curves, teacher)
        axes[2].set_xlabel("optimizer steps")
        for axis in axes:
            dress(axis)
            axis.set_xlim(0, total)
            for name, first, last in stages:
                axis.axvspan(first, last, color=_STAGES[name], zorder=-2, linewidth=0)
            for step in narrowings:
                axis.axvline(step, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        _label_stages(axes[0], stages)


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
                color=MUTED,
                fontsize=11,
            )
            if label.get_window_extent().width < pixels * (last - first):
                break
            label.remove()


def _draw_width(axis: "Axes", curve: Curve) -> None:
    """The FFN width; heads on an axis of their own at the right."""
    _draw_units(axis, curve, "width", "FFN width", COLORS[0])
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
    for curve, color in zip(curves, COLORS, strict=False):
        draw_curve(axis, curve, curve.name, color)
    values = [v for c in curves for v in _late(c)]
    if teacher is not None:
        axis.axhline(teacher, color=INK, linestyle=":", label=f"teacher: {teacher:.3f}")
        values.append(teacher)
    fit_axis(axis, values)
    axis.legend(fontsize=10.5, loc="upper right", frameon=False)


def draw_curve(axis: "Axes", curve: Curve, name: str, color: str) -> None:
    """Draws the training loss of an epoch as a line, its validation as a point."""
    steps, train = curve.points("bits_per_byte")
    validation = curve.columns["validation"]
    axis.plot(steps, train, color=color, linewidth=1.6, alpha=0.6)
    axis.plot(
        steps,
        validation,
        "o",
        color=color,
        markeredgecolor="white",
        label=f"{name}: {validation[-1]:.3f} on held-out text",
    )


def fit_axis(axis: "Axes", values: Sequence[float]) -> None:
    """Sets an axis to the finite values, which leave out the first steps' losses."""
    known = [value for value in values if np.isfinite(value)] or [0.0]
    low, span = min(known), max(max(known) - min(known), 0.1)
    axis.set_ylim(low - 0.1 * span, low + 1.1 * span)
    axis.set_ylabel("bits per byte")


def _late(curve: Curve) -> list[float]:
    """The losses after the first tenth of the epochs: those are far above."""
    skipped = -(-len(curve.columns["step"]) // 10)
    columns = (curve.columns["bits_per_byte"], curve.columns["validation"])
    return [value for column in columns for value in column[skipped:] or column]


def draw_side_by_side(
    path: str | os.PathLike | BinaryIO, runs: Sequence[tuple[str, Curve]]
) -> None:
    """Draws loss and width of the pruned models of several runs, with their names."""
    panels: Any = {"nrows": 2, "ncols": 1, "sharex": True, "height_ratios": [2.2, 1]}
    with figure(path, 11, 6.5, "", **panels) as (loss, width):
        for index, (name, curve) in enumerate(runs):
            color = COLORS[index % len(COLORS)]
            draw_curve(loss, curve, name, color)
            width.plot(*curve.points("width"), color=color, linewidth=1.8)
        fit_axis(loss, [value for _, curve in runs for value in _late(curve)])
        loss.legend(loc="upper right", frameon=False)
        width.set_ylabel("FFN width")
        width.set_ylim(bottom=0)
        width.set_xlabel("optimizer steps")
        for axis in (loss, width):
            dress(axis)
