"""The figures of a training, one per epoch: metrics.csv."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

#: The columns of metrics.csv after the name of the training.
COLUMNS = (
    "step",
    "learning_rate",
    "width",
    "kv_groups",
    "bits_per_byte",
    "validation",
    "validation_perplexity_per_token",
    "ms_per_step",
)


class Curve:
    """Holds the figures of one training, one per epoch, by column."""

    def __init__(self, name: str, history: Mapping[str, Sequence[float]]) -> None:
        self.name = name
        self.columns = {c: list(history[c]) for c in COLUMNS if c in history}
        self.before = float("nan")  # bits per byte before the first step

    def add(self, figures: Mapping[str, float]) -> None:
        """Adds the figures of an epoch."""
        for column in COLUMNS:
            if column in figures:
                self.columns.setdefault(column, []).append(float(figures[column]))

    def last(self) -> dict[str, float]:
        """The figures of the last epoch."""
        return {column: values[-1] for column, values in self.columns.items()}

    def points(self, column: str) -> tuple[list[float], list[float]]:
        """The steps, and a column's figures at them."""
        return self.columns["step"], self.columns[column]

    def validation_at(self, step: int) -> float | None:
        """Bits per byte of the validation after a step; None if there was none."""
        if step == 0:
            return None if self.before != self.before else self.before
        steps = self.columns["step"]
        return self.columns["validation"][steps.index(step)] if step in steps else None

    def fastest(self, first: int, last: int) -> float | None:
        """Milliseconds per step of the fastest epoch that lies between two steps."""
        steps, ms = self.points("ms_per_step")
        begins = [0, *steps[:-1]]
        within = [
            each
            for each, begin, end in zip(ms, begins, steps, strict=True)
            if first <= begin and end <= last
        ]
        return min(within, default=None)


def metrics_csv(curves: Iterable[Curve]) -> str:
    """The curves as CSV text, one line per epoch of each training."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["run", *COLUMNS])
    for curve in curves:
        columns = [curve.columns.get(column) for column in COLUMNS]
        for epoch in range(len(curve.columns.get("step", []))):
            row = ["" if c is None else f"{c[epoch]:.7g}" for c in columns]
            lines.writerow([curve.name, *row])
    return text.getvalue()
