"""One picture of a run: rate, width, loss, and which neurons lived when."""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np

from keras_idea.callbacks.monitor.bands import bands
from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.heat_map import draw_heat_maps, draw_key, map_heights
from keras_idea.plot import COLORS, INK, MUTED, dress, figure
from keras_idea.validation import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Name, first and last step.
_Stage: TypeAlias = tuple[str, int, int]

# By place: the pruned run, the one without pruning, the narrow one from scratch.
_COLORS = ("#0b7285", "#e8590c", "#9c36b5")
_PRUNED = _COLORS[0]
_RATE = "#5f3dc4"
_HEADS = "#2b8a3e"
_NEAR_TICKS = 0.15  # of an axis of widths
_STAGES = {
    "wide": "#ffffff",
    "pruning": "#fff3d6",
    "recovery": "#e6f7ee",
    "all widths": "#e6f7ee",
}


def draw_run(
    path: str | os.PathLike,
    curves: Sequence[TrainingCurve],
    neurons: Sequence[NeuronLives],
    stages: Sequence[_Stage],
    compaction_steps: Sequence[int] = (),
    title: str = "",
    rate: TrainingCurve | None = None,
    widths: Mapping[str, int] | None = None,
    teacher: float | None = None,
) -> None:
    """Draws a run as a PNG, 1200 pixels wide.

    Its panels share the axis of steps: learning rate, width, loss in bits per byte
    (each batch, smoothed, and validation points), the validation close up, and heat
    maps of the neurons, sorted by the step at which they were pruned. Each layer has
    its own heat map, unless they are more than 12 (see `bands`).

    Args:
        path: path of the PNG.
        curves: list of `TrainingCurve`: the pruned run first, then those it is
            compared with.
        neurons: list of `NeuronLives`, one a layer.
        stages: list of `(name, first_step, last_step)`: "wide", "pruning",
            "recovery".
        compaction_steps: ascending, the steps after which the model became narrower.
        title: str, drawn above.
        rate: `TrainingCurve` or None: whose learning rate is drawn, if `curves` are of
            one training at several widths.
        widths: dict of name to neurons, or None: these widths, in place of that of the
            pruned run, and no heat maps.
        teacher: float or None, bits per byte of the teacher on the held-out text.
    """
    if widths is None:
        curves = [dataclasses.replace(c, name=_from_wide(c.name)) for c in curves]
    late, shown, total = _close_up(curves), bands(neurons), stages[-1][2]
    heights = [1, 1, 2.2, 1.2] if late else [1, 1, 2.2]
    curve_panels = len(heights)
    if widths is None:
        heights += [*map_heights(shown), 0.15]
    # Beside the panels, room for the title of each heat map.
    height = 2 * sum(heights) + 0.27 * len(shown)
    panels = {"nrows": len(heights), "ncols": 1, "height_ratios": heights}
    with figure(path, 12, height, title, title_size=15, **panels) as axes:
        axes[0].figure.get_layout_engine().set(h_pad=0.06, hspace=0.02)
        _draw_learning_rate(axes[0], curves if rate is None else [rate])
        if widths is None:
            _draw_width(axes[1], curves[0])
            *axes, key = axes
            draw_heat_maps(axes[curve_panels:], shown, total)
            draw_key(key, shown)
        else:
            _draw_widths(axes[1], widths, stages)
        colors = _COLORS if widths is None else COLORS
        _draw_loss(axes[2], curves, colors, teacher)
        if late:
            _draw_close_up(axes[3], curves, late, colors)
        if teacher is not None:
            for axis in axes[2:curve_panels]:
                axis.axhline(teacher, color=INK, linewidth=1.2, linestyle=":")
        for axis in axes[:curve_panels]:
            dress(axis)
            for name, first, last in stages:
                axis.axvspan(first, last, color=_STAGES[name], zorder=-2, linewidth=0)
        for axis in axes:
            axis.set_xlim(0, total)
            axis.tick_params(labelbottom=axis is axes[-1])
        axes[-1].set_xlabel("optimizer steps")
        _label_stages(axes[0], stages)
        _mark_compaction(axes, compaction_steps, curves[0])


def _from_wide(name: str) -> str:
    """The name of a training, which of a pruned model begins wide."""
    return f"wide, then {name}" if name.startswith("pruned") else name


def _label_stages(axis: "Axes", stages: Sequence[_Stage]) -> None:
    pixels = axis.bbox.width / stages[-1][2]  # a step's; a little less than drawn
    for name, first, last in stages:
        # A stage too short for its steps, or for its name, goes without.
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


def _mark_compaction(
    axes: Sequence["Axes"], steps: Sequence[int], curve: TrainingCurve
) -> None:
    for axis in axes:
        for step in steps:
            axis.axvline(step, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    if not steps:
        return
    step = steps[-1]
    # To whichever side of the last line, and of the curve, there is room.
    left = step > 0.75 * curve.steps[-1]
    above = curve.width[-1] < 0.75 * curve.width[0]
    text = "the model is narrowed\nhere, inside fit"
    axes[1].annotate(
        text if len(steps) == 1 else text.replace("narrowed", "narrowed last"),
        (step, 0.96 if above else 0.06),
        xycoords=("data", "axes fraction"),
        xytext=(-10 if left else 10, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top" if above else "bottom",
        fontsize=10.5,
        color=INK,
    )


def _draw_learning_rate(axis: "Axes", curves: Sequence[TrainingCurve]) -> None:
    """The first run's, and dashed those of the others that had another."""
    first, *others = curves
    axis.plot(
        first.steps, first.learning_rate, color=_RATE, linewidth=2, label=first.name
    )
    others = [c for c in others if not _same(c.learning_rate, first.learning_rate)]
    for other in others:
        axis.plot(other.steps, other.learning_rate, "--", color=_RATE, label=other.name)
    if others:
        axis.legend(fontsize=10.5, loc="lower left")
    axis.set_ylabel("learning rate")
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter("{x:g}")


def _same(rates: np.ndarray, others: np.ndarray) -> bool:
    return rates.shape == others.shape and np.allclose(rates, others)


def _draw_width(axis: "Axes", curve: TrainingCurve) -> None:
    """The neurons; heads beside them, on an axis of their own at the right."""
    _draw_units(axis, curve.steps, curve.width, "FFN width", _PRUNED)
    if curve.kv_groups is not None:
        right = axis.twinx()
        right.spines[:].set_visible(False)
        _draw_units(right, curve.steps, curve.kv_groups, "KV heads", _HEADS)
        right.yaxis.label.set_color(_HEADS)


def _draw_units(
    axis: "Axes", steps: np.ndarray, units: np.ndarray, label: str, color: str
) -> None:
    steps = np.concatenate([[0], steps])
    units = np.concatenate([units[:1], units])
    axis.step(steps, units, where="post", color=color, linewidth=2)
    axis.fill_between(steps, units, step="post", color=color, alpha=0.12, linewidth=0)
    first, last = int(units[0]), int(units[-1])
    near = _NEAR_TICKS * first  # labels nearer to each other would overlap
    axis.set_yticks(sorted({last, first} | ({0} if last > near else set())))
    if 0 < first - last < near:
        axis.get_yticklabels()[-1].set_verticalalignment("bottom")
        axis.get_yticklabels()[-2].set_verticalalignment("top")
    axis.set_ylim(0, 1.08 * first)
    axis.set_ylabel(label)


def _draw_widths(
    axis: "Axes", widths: Mapping[str, int], stages: Sequence[_Stage]
) -> None:
    """A line for each width, over the steps of the stage in which it is trained."""
    _, begin, total = stages[-1]
    for (name, neurons), color in zip(widths.items(), itertools.cycle(COLORS)):
        start = 0 if neurons == max(widths.values()) else begin
        axis.hlines(neurons, start, total, color=color, linewidth=2, label=name)
    axis.set_yticks(sorted({0, *widths.values()}))
    axis.set_ylim(0, 1.08 * max(widths.values()))
    axis.set_ylabel("FFN width")


def _draw_loss(
    axis: "Axes",
    curves: Sequence[TrainingCurve],
    colors: Sequence[str],
    teacher: float | None = None,
) -> None:
    # The first steps' losses are far above the rest and would flatten it.
    late = np.concatenate([smooth(c.loss)[len(c.loss) // 15 :] for c in curves])
    validated = [v for c in curves for v in c.validation.values() if math.isfinite(v)]
    known = [] if teacher is None else [teacher]
    low = min([late.min(), *validated, *known])  # on other text these may be lower
    span = max(late.max() - low, *(bits - low for bits in known), 0.1)
    low, high = low - 0.15 * span, low + 1.05 * span
    for curve, color in zip(curves, itertools.cycle(colors)):
        # Markers at the edge are drawn whole, so those outside are left out.
        inside = {k: v for k, v in curve.validation.items() if low <= v <= high}
        if len(curve.steps):
            axis.plot(curve.steps, curve.loss, color=color, alpha=0.16, linewidth=0.8)
            axis.plot(
                curve.steps,
                smooth(curve.loss),
                color=color,
                linewidth=1.8,
                label=f"{curve.name}: train",
            )
        if curve.validation:
            axis.plot(
                list(inside),
                list(inside.values()),
                "o",
                color=color,
                markeredgecolor="white",
                markersize=7,
                clip_on=False,
                zorder=4 if color == _PRUNED else 3,
                label=f"{curve.name}: validation",
            )
    if teacher is not None:
        label = f"teacher: {teacher:.3f}"
        axis.plot([], [], color=INK, linewidth=1.2, linestyle=":", label=label)
    axis.set_ylim(low, high)
    axis.set_ylabel("bits per byte")
    axis.legend(fontsize=10.5, loc="upper right", facecolor="white", edgecolor="none")


def _close_up(curves: Sequence[TrainingCurve]) -> list[dict[int, float]]:
    """The validations of the last half of each run; none if they are too few."""
    half = max(int(c.steps[-1]) for c in curves if len(c.steps)) / 2
    late = [{k: v for k, v in c.validation.items() if k >= half} for c in curves]
    return late if len(late[0]) > 2 else []


def _draw_close_up(
    axis: "Axes",
    curves: Sequence[TrainingCurve],
    late: Sequence[dict[int, float]],
    colors: Sequence[str],
) -> None:
    """All validations, on an axis for those of the last half: they differ little."""
    for curve, points, color in zip(curves, late, itertools.cycle(colors)):
        if not points:
            continue  # the steps of several widths at once
        validation = curve.validation
        axis.plot(
            list(validation),
            list(validation.values()),
            "o-",
            color=color,
            markersize=5,
            label=f"{curve.name}: {list(points.values())[-1]:.3f} at the end",
        )
    values = [value for points in late for value in points.values()]
    room = max(0.08 * (max(values) - min(values)), 1e-3)
    axis.set_ylim(min(values) - room, max(values) + room)
    axis.set_ylabel("validation,\nclose up")
    axis.legend(fontsize=10.5, loc="lower left", facecolor="white", edgecolor="none")


def smooth(values: np.ndarray, half: int | None = None) -> np.ndarray:
    """Running mean over `half` values each way (an 80th of all), fewer at the ends."""
    half = max(1, len(values) // 80) if half is None else half
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    low, high = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (total[high] - total[low]) / (high - low)


_LINES = ("-", "--", ":")


def draw_side_by_side(
    path: str | os.PathLike | BinaryIO, runs: Sequence[tuple[str, TrainingCurve]]
) -> None:
    """Draws loss and width of the pruned models of several runs, with their names.

    Lines are the smoothed training loss, dots the validations.
    """
    with figure(
        path, 11, 6.5, "", nrows=2, ncols=1, sharex=True, height_ratios=[2.2, 1]
    ) as (loss, width):
        late = []
        for index, (name, curve) in enumerate(runs):
            color = COLORS[index % len(COLORS)]
            line = _LINES[index // len(COLORS) % len(_LINES)]
            look = {"color": color, "linestyle": line, "linewidth": 1.8}
            shown = smooth(curve.loss)
            loss.plot(curve.steps, shown, label=name, **look)
            loss.plot(
                list(curve.validation),
                list(curve.validation.values()),
                "o",
                color=color,
                markeredgecolor="white",
            )
            width.step(curve.steps, curve.width, where="post", **look)
            late += [*shown[len(shown) // 15 :], *curve.validation.values()]
        # The first steps' losses are far above the rest and would flatten it.
        low, span = min(late), max(max(late) - min(late), 0.1)
        loss.set_ylim(low - 0.1 * span, low + 1.08 * span)
        loss.set_ylabel("bits per byte")
        loss.legend(loc="upper right", frameon=False)
        width.set_ylabel("FFN width")
        width.set_ylim(bottom=0)
        width.set_xlabel("optimizer steps")
        for axis in (loss, width):
            dress(axis)
