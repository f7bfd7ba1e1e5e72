"""What a run leaves to be drawn, and as CSV; drawn in `picture.py`."""

import csv
import dataclasses
import io
from collections.abc import Iterable

import numpy as np


@dataclasses.dataclass(frozen=True)
class TrainingCurve:
    """One training run, step by step.

    Args:
        name: str, such as "pruned".
        steps: int array `(n,)`, optimizer steps done.
        loss: float array `(n,)`, bits per byte of that step's batch.
        learning_rate: float array `(n,)`, the rate of that step.
        width: int array `(n,)`, neurons alive in an FFN after that step.
        validation: dict of step to bits per byte on the held-out text.
        kv_groups: int array `(n,)`, key/value heads of an attention layer after that
            step; or None, if none are pruned. Default None.
    """

    name: str
    steps: np.ndarray
    loss: np.ndarray
    learning_rate: np.ndarray
    width: np.ndarray
    validation: dict[int, float]
    kv_groups: np.ndarray | None = None


def metrics_csv(curves: Iterable[TrainingCurve]) -> str:
    """The curves as CSV text, one line a step of each run.

    The losses are in bits per byte: of the step's batch, and of the validation, which
    is empty where it was not measured; as are the heads where none are pruned.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    names = ("run", "step", "learning_rate", "width", "bits_per_byte", "validation")
    lines.writerow([*names, "kv_groups"])
    for curve in curves:
        heads = [""] * len(curve.steps) if curve.kv_groups is None else curve.kv_groups
        columns = (curve.steps, curve.learning_rate, curve.width, curve.loss, heads)
        for step, rate, width, loss, kv_groups in zip(*columns, strict=True):
            validation = curve.validation.get(int(step))
            lines.writerow(
                [
                    curve.name,
                    int(step),
                    f"{rate:.6g}",
                    int(width),
                    f"{loss:.5f}",
                    "" if validation is None else f"{validation:.5f}",
                    kv_groups,
                ]
            )
    return text.getvalue()
