"""What half of the channels saves: the blocks of docs/speed.md."""

import json

from benchmarks.record import REPOSITORY

TITLES = {"torch": "eager PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}


def _cells():
    """List of (model and batch, backend, cell)."""
    found = []
    for backend in TITLES:
        path = REPOSITORY / f"benchmarks/results/channels_speed-{backend}.json"
        cells = json.loads(path.read_text())["cells"]
        found += [(label, backend, cell) for label, cell in cells.items()]
    return found


def _ratio(cell, what, name):
    ratio = cell[what]["ratios"][name]
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


def speeds():
    """The table: narrow against wide."""
    head = "model, images per batch | backend | train step | prediction | multiply-adds"
    lines = [f"| {head} |", "|---|---|---|---|---:|"]
    for label, backend, cell in _cells():
        wide, narrow = cell["multiply-adds"]
        both = [_ratio(cell, what, "narrow") for what in ("train step", "prediction")]
        row = [label, TITLES[backend], *both, f"{narrow / wide:.2f}"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def pruning():
    """A step in the middle of pruning."""
    said = [
        f"{label}, {TITLES[backend]}: {_ratio(cell, 'train step', 'pruning')}"
        for label, backend, cell in _cells()
        if "pruning" in cell["train step"]["ratios"]
    ]
    return (
        "While pruning, a step takes this many times as long as a plain step (model, "
        f"images per batch, backend): {'; '.join(said)}."
    )


BLOCKS = {"speed-channels": speeds, "speed-channels-pruning": pruning}
