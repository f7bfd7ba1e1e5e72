"""The figures of the paper, in kind: curves, sizes, heat maps, differences."""

import dataclasses

import numpy as np

from benchmarks.intervals import estimate
from benchmarks.paper.paper_table import SeededRow, paired_difference
from keras_idea.lm.report.picture import smooth
from keras_idea.plot import COLORS, INK, MUTED, dress, figure


@dataclasses.dataclass(frozen=True)
class Curve:
    """One training run, thinned out.

    Args:
        name: str.
        steps: list of int, the last step of each stretch.
        loss: list of float, mean bits per byte of the stretch.
        learning_rate: list of float, of those steps.
        stages: list of int, the last step of each stage.
    """

    name: str
    steps: list
    loss: list
    learning_rate: list
    stages: list


def draw_curves(path, curves: list[Curve], title: str) -> None:
    """Training loss above, learning rate below; of at most six runs."""
    with figure(
        path, 11, 7.5, title, nrows=2, ncols=1, sharex=True, height_ratios=[2.4, 1]
    ) as (loss, rate):
        late: list[np.ndarray] = []
        for curve, color in zip(curves, COLORS, strict=False):
            steps, smooth = np.array(curve.steps), _smooth_stages(curve)
            loss.plot(steps, curve.loss, color=color, alpha=0.18, linewidth=0.8)
            loss.plot(steps, smooth, color=color, linewidth=1.8, label=curve.name)
            # Dashes of their own each: naive pipelines share a curve.
            dashes = (3 * len(late), (9, 3 * len(late))) if late else "-"
            rate.plot(
                steps, curve.learning_rate, color=color, linewidth=2, linestyle=dashes
            )
            late.append(smooth[steps > 0.15 * steps[-1]])
            for last in curve.stages[:-1]:
                loss.axvline(last, color=color, linewidth=0.8, linestyle=(0, (4, 4)))
        # The first steps' losses are far above the rest and would flatten it.
        known = np.concatenate(late) if late else np.zeros(1)
        low, high = float(known.min()), float(known.max())
        span = max(high - low, 0.05)
        loss.set_ylim(low - 0.08 * span, high + 0.05 * span)
        loss.set_ylabel("training loss, bits per byte")
        loss.legend(loc="upper right", frameon=False)
        rate.set_ylabel("learning rate")
        rate.set_xlabel("optimizer steps; dashed: a stage ends")
        rate.set_ylim(bottom=0)
        rate.ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))
        for axis in (loss, rate):
            dress(axis)


def draw_sizes(path, points, baseline, title, label, reference):
    """Bits per byte over some number, against a row that has none.

    Args:
        path: path of the PNG.
        points: list of `(x, SeededRow)`.
        baseline: `SeededRow` or None: a horizontal line.
        title: str.
        label: str, of the x axis.
        reference: str, the baseline's name in the picture.
    """
    with figure(path, 8, 5, title, nrows=1, ncols=1) as axis:
        known = [(x, estimate(row.values.values())) for x, row in points]
        known = [(x, value) for x, value in known if value is not None]
        axis.errorbar(
            [x for x, _ in known],
            [value.mean for _, value in known],
            [value.error or 0.0 for _, value in known],
            fmt="o-",
            color=COLORS[0],
            capsize=3,
        )
        line = baseline and estimate(baseline.values.values())
        if line:
            axis.axhline(line.mean, color=COLORS[1], linestyle="--", label=reference)
            error = line.error or 0.0
            low, high = line.mean - error, line.mean + error
            axis.axhspan(low, high, color=COLORS[1], alpha=0.12, linewidth=0)
            axis.legend(frameon=False, labelcolor=COLORS[1])
        axis.set_xlabel(label)
        axis.set_ylabel("bits per byte, held out")
        axis.margins(x=0.08, y=0.2)
        dress(axis)


def draw_heat_map(path, grid, title, row_label, column_label):
    """Differences from one choice, for all pairs of two others.

    Args:
        path: path of the PNG.
        grid: dict of (row, column) to `Estimate` or None; texts, in the order in
            which they are drawn.
        title: str.
        row_label: str, what the rows mean.
        column_label: str, what the columns mean.
    """
    rows = list(dict.fromkeys(row for row, _ in grid))
    columns = list(dict.fromkeys(column for _, column in grid))
    values = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in grid.items():
        if value is not None:
            values[rows.index(row), columns.index(column)] = value.mean
    size = (2.6 + 1.5 * len(columns), 1.9 + 0.85 * len(rows))
    with figure(path, *size, title, nrows=1, ncols=1) as axis:
        shown = axis.imshow(values, cmap="YlGnBu_r", aspect="auto")
        axis.set_xticks(range(len(columns)), columns)
        axis.set_yticks(range(len(rows)), rows)
        axis.set_xlabel(column_label)
        axis.set_ylabel(row_label)
        middle = np.nanmean(shown.get_clim()) if np.isfinite(values).any() else 0.0
        for (row, column), value in grid.items():
            if value is None:
                continue
            error = "" if value.error is None else f"\n± {value.error:.4f}"
            axis.text(
                columns.index(column),
                rows.index(row),
                f"{value.mean:+.4f}{error}",
                ha="center",
                va="center",
                fontsize=9.5,
                color="white" if value.mean < middle else INK,
            )
        dress(axis, grid=None)
        axis.tick_params(length=0)
        for spine in axis.spines.values():
            spine.set_visible(False)


def draw_differences(path, rows: list[SeededRow], title: str) -> bool:
    """Each row against its reference, with the standard error.

    Those without one are left out. Returns whether there was anything to draw.
    """
    by_name = {row.name: row for row in rows}
    gaps = [
        (row.name, paired_difference(row, by_name[row.reference]))
        for row in rows
        if row.reference in by_name
    ]
    gaps = [(name, gap) for name, gap in gaps if gap is not None]
    if not gaps:
        return False
    with figure(path, 9, 1.6 + 0.42 * len(gaps), title, nrows=1, ncols=1) as axis:
        for place, (_, gap) in enumerate(gaps):
            color = COLORS[0] if gap.mean < 0 else COLORS[1]
            axis.errorbar(
                gap.mean,
                place,
                xerr=gap.error or 0.0,
                fmt="o",
                color=color,
                capsize=3,
            )
        axis.axvline(0, color=MUTED, linewidth=1)
        axis.set_yticks(range(len(gaps)), [name for name, _ in gaps])
        axis.set_ylim(len(gaps) - 0.5, -0.5)
        axis.set_xlabel("bits per byte against its reference (left is better)")
        dress(axis, grid="x")
    return True


def _smooth_stages(curve):
    """Smoothed over a thirtieth; a new stage may jump, so each is for itself."""
    steps, loss = np.array(curve.steps), np.array(curve.loss)
    cuts = np.searchsorted(steps, curve.stages[:-1], side="right")
    half = max(1, len(loss) // 60)
    return np.concatenate([smooth(part, half) for part in np.split(loss, cuts)])
