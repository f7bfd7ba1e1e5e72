"""What a run leaves to be drawn, and as CSV; drawn in `picture.py`."""

import csv
import dataclasses
import io
from collections.abc import Iterable

import numpy as np


@dataclasses.dataclass(frozen=True)
class TrainingCurve:
    """Holds the values of one training run, step by step.

    Args:
        name: str. The name of the run, such as "pruned".
        steps: int array `(n,)`. Optimizer steps done.
        loss: float array `(n,)`. Bits per byte of that step's batch.
        learning_rate: float array `(n,)`. The rate of that step.
        width: int array `(n,)`. Active neurons per FFN after that step.
        validation: dict. Maps a step to bits per byte on the held-out text.
        kv_groups: int array `(n,)` or None. Active key/value heads per attention layer
            after that step. None if no heads are pruned. Defaults to None.
        perplexity: dict. Maps a step to the perplexity per token of that validation.
            Defaults to none.
        at_widths: dict. Maps the name of a narrower width that is trained too to what
            `validation` is at that width. Defaults to none.
    """

    name: str
    steps: np.ndarray
    loss: np.ndarray
    learning_rate: np.ndarray
    width: np.ndarray
    validation: dict[int, float]
    kv_groups: np.ndarray | None = None
    perplexity: dict[int, float] = dataclasses.field(default_factory=dict)
    at_widths: dict[str, dict[int, float]] = dataclasses.field(default_factory=dict)


def metrics_csv(curves: Iterable[TrainingCurve]) -> str:
    """The curves as CSV text, one line a step of each run.

    The losses are in bits per byte: of the step's batch, and of the validation, which
    is empty where it was not measured, and so is its perplexity per token; as are the
    heads where none are pruned. Where several widths are trained, each narrower one has
    a column of its validations, such as "small_validation".
    """
    curves = list(curves)
    widths = [name for curve in curves for name in curve.at_widths]
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    names = ("run", "step", "learning_rate", "width", "bits_per_byte", "validation")
    later = ["kv_groups", "validation_perplexity_per_token"]
    lines.writerow([*names, *later, *(f"{name}_validation" for name in widths)])
    for curve in curves:
        heads = [""] * len(curve.steps) if curve.kv_groups is None else curve.kv_groups
        columns = (curve.steps, curve.learning_rate, curve.width, curve.loss, heads)
        for step, rate, width, loss, kv_groups in zip(*columns, strict=True):
            validation = curve.validation.get(int(step))
            perplexity = curve.perplexity.get(int(step))
            lines.writerow(
                [
                    curve.name,
                    int(step),
                    f"{rate:.6g}",
                    int(width),
                    f"{loss:.5f}",
                    _bits(validation),
                    kv_groups,
                    "" if perplexity is None else f"{perplexity:.6g}",
                    *(_bits(curve.at_widths.get(n, {}).get(int(step))) for n in widths),
                ]
            )
    return text.getvalue()


def _bits(validation: float | None) -> str:
    return "" if validation is None else f"{validation:.5f}"
