"""The curves of several runs in one picture."""

import os
from collections.abc import Sequence
from typing import BinaryIO

from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.picture import smooth
from keras_idea.plot import COLORS, dress, figure

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
