"""What a search found: as a table and as a picture."""

import dataclasses
import os
from collections.abc import Sequence

from keras_idea.plot import COLORS, MUTED, dress, figure
from keras_idea.shapes.targets import Shape


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A shape that `keras_idea.search` judged.

    Attributes:
        targets: dict of an axis to how many stay, as `keras_idea.shrink` takes it.
        loss: float, of the model shrunk to it and not yet trained, on the data.
        parameters: int, of that model.
        flops: int, operations of a token in a forward pass: two a weight in a matrix.
    """

    targets: Shape
    loss: float
    parameters: int
    flops: int


def table(model: Candidate, candidates: Sequence[Candidate]) -> str:
    """Lines of text: the model itself, and below it the candidates, best first."""
    axes = list(dict.fromkeys(axis for c in candidates for axis in c.targets))
    head = ["", "loss", "parameters", *axes]
    rows = [
        ["as it is", f"{model.loss:.4f}", f"{model.parameters:,}", *["all"] * len(axes)]
    ]
    for place, found in enumerate(candidates, 1):
        kept = [f"{found.targets.get(axis, 'all')}" for axis in axes]
        rows.append([str(place), f"{found.loss:.4f}", f"{found.parameters:,}", *kept])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in [head, *rows]
    )


def draw(
    path: str | os.PathLike, model: Candidate, candidates: Sequence[Candidate]
) -> None:
    """Draws the loss over the parameters, the three best by name, as a PNG."""
    title = "Loss of each shape before any training"
    with figure(path, 9, 5.5, title) as axis:
        axis.axhline(model.loss, color=MUTED, linestyle="--", linewidth=1)
        axis.annotate(
            f"the model as it is: {model.parameters:,} parameters",
            (0.99, model.loss),
            xycoords=("axes fraction", "data"),
            xytext=(0, 4),
            textcoords="offset points",
            ha="right",
            color=MUTED,
        )
        best, rest = candidates[:3], candidates[3:]
        for part, color, name in (
            (rest, COLORS[5], "others"),
            (best, COLORS[0], "best"),
        ):
            axis.plot(
                [candidate.parameters for candidate in part],
                [candidate.loss for candidate in part],
                "o",
                color=color,
                markersize=8,
                label=name,
            )
        middle = sum(axis.dataLim.intervalx) / 2
        for found in best:
            left = found.parameters > middle  # of the point there is more room
            kept = ", ".join(f"{axis} {size}" for axis, size in found.targets.items())
            axis.annotate(
                kept,
                (found.parameters, found.loss),
                xytext=(-8 if left else 8, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center",
                fontsize=10,
            )
        axis.margins(x=0.35, y=0.12)
        axis.set_xlabel("parameters")
        axis.set_ylabel("loss on the data")
        dress(axis)
