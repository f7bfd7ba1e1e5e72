"""Channels of two networks, pruned by each contestant, over seeds.

    pip install -r benchmarks/peers/channels.txt
    KERAS_BACKEND=torch python -m benchmarks.peers.channels

All are on PyTorch, in one process. Cells that the result file has are kept. A Keras
network is copied into the same network of PyTorch, which must give its outputs: one
counter (Torch-Pruning's) and one clock measure all. Writes
benchmarks/results/peers_channels.json and .md, after each cell.
"""

import argparse
import importlib.metadata
import itertools
import json
import pathlib
import statistics
import time

import keras
import numpy as np
import torch
import torch_pruning as tp
from torch.nn.functional import cross_entropy

from benchmarks import record
from benchmarks.intervals import estimate
from benchmarks.peers.channels import nets, task
from benchmarks.peers.channels.contestants import (
    CONTESTANTS,
    optimizer_of,
    predictions,
    tensors,
)
from benchmarks.peers.channels.training import trained_wide

TIMED_AT, TIMED_BATCH, TURNS = 32, 32, 15
PACKAGES = ("torch", "keras", "torch-pruning", "fasterai", "fastai", "scikit-learn")


def measured(name, seed, way, wide, stages):
    """dict: what a cell says."""
    torch.manual_seed(seed)
    keras.utils.set_random_seed(seed)
    start = time.process_time()
    batches = task.batches(1000 + seed, stages.after)
    net = CONTESTANTS[way](name, wide, batches, stages)
    seconds = time.process_time() - start
    (x, y), widths = task.images()[1], net.widths()
    wanted = {k: task.SHARE * n for k, n in nets.TorchNet(name).widths().items()}
    macs, parameters = tp.utils.count_ops_and_params(net, tensors(x[:1]))
    return {
        **task.judged(predictions(net, x), y),
        "multiply-adds": float(macs),
        "parameters": float(parameters),
        "widths": widths,
        "exact": all(widths[k] == round(n) for k, n in wanted.items()),
        "process seconds": seconds,
    }


def checked_copy(name, wide):
    """Raises unless the wide network of PyTorch is that of Keras."""
    x, _ = task.images()[1]
    ours = np.asarray(wide.predict(x, verbose=0))
    np.testing.assert_allclose(
        predictions(nets.as_torch(name, wide), x), ours, rtol=1e-4, atol=1e-4
    )


def step_seconds(name, widths):
    """dict: label -> seconds of a train step in each turn, and of a prediction.

    Args:
        name: str, of a network.
        widths: dict of label to its widths. The networks take turns.
    """
    shape = (TIMED_BATCH, 1, TIMED_AT, TIMED_AT)
    x, y = torch.randn(shape), torch.randint(0, nets.CLASSES, (TIMED_BATCH,))
    models = {label: nets.TorchNet(name, each) for label, each in widths.items()}
    optimizers = {k: optimizer_of(model, 1e-4) for k, model in models.items()}
    found = {label: {"step": [], "prediction": []} for label in models}
    for turn, label in itertools.product(range(TURNS + 1), models):
        model, start = models[label].train(), time.process_time()
        optimizers[label].zero_grad()
        cross_entropy(model(x), y).backward()
        optimizers[label].step()
        between = time.process_time()
        with torch.no_grad():
            model.eval()(x)
        if turn:
            found[label]["step"].append(between - start)
            found[label]["prediction"].append(time.process_time() - between)
    return found


def timed(name, cells):
    """dict: way -> ratios to the wide network, of a step and of a prediction."""
    widths = {w: c["widths"] for (n, _, w), c in cells.items() if n == name}
    seconds = step_seconds(name, {"wide": None, **widths})
    wide = seconds.pop("wide")
    return {
        way: {
            what: statistics.median(
                a / b for a, b in zip(each[what], wide[what], strict=True)
            )
            for what in wide
        }
        for way, each in seconds.items()
    }


def spread(values, digits):
    """A mean with its standard error."""
    found = estimate(values)
    error = "" if found.error is None else f" ± {found.error:.{digits}f}"
    return f"{found.mean:.{digits}f}{error}"


def exactness(way, found):
    """Whether every run ended at exactly the width that was asked for."""
    if way == "not pruned":
        return "-"
    return "yes" if all(cell["exact"] for cell in found) else "no"


def rows(name, cells, times):
    """The lines of a network, and the wide one's first."""
    for way in CONTESTANTS:
        found = [c for (n, _, w), c in cells.items() if (n, w) == (name, way)]
        if not found:
            continue
        ratios = times.get(way, {})
        yield [
            way,
            f"{len(found)}",
            spread([100 * c["accuracy"] for c in found], 2),
            spread([c["loss"] for c in found], 4),
            f"{statistics.mean(c['parameters'] for c in found):,.0f}",
            f"{statistics.mean(c['multiply-adds'] for c in found) / 1e3:,.0f}",
            exactness(way, found),
            *(f"{ratios[k]:.2f}" if ratios else "" for k in ("step", "prediction")),
            f"{statistics.median(c['process seconds'] for c in found):.1f}",
        ]


def report(output, facts, cells, times, stages):
    """Writes the tables of the cells so far."""
    tables = [
        {
            "title": f"{name}: {task.SHARE:.0%} of the channels of each group",
            "columns": [
                "contestant",
                "seeds",
                "accuracy, %",
                "test loss",
                "parameters",
                "multiply-adds, thousands",
                "exactly the width",
                "train step / wide",
                "prediction / wide",
                "the run, process s",
            ],
            "rows": list(rows(name, cells, times.get(name, {}))),
            "notes": f"Mean ± standard error over seeds. {stages.wide} steps wide, "
            f"{stages.prune} of pruning, {stages.recover} of recovery; "
            f"{task.BATCH} images per step. Times: median ratio of {TURNS} turns in "
            f"PyTorch, process time, {TIMED_BATCH} images of {TIMED_AT} x {TIMED_AT}.",
        }
        for name in nets.NETS
    ]
    kept = {"|".join(map(str, key)): cell for key, cell in cells.items()}
    record.write(
        output, "peers_channels", facts, {"cells": kept, "times": times}, tables
    )


def known(path):
    """The cells of an earlier run."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())["cells"].items()
    parts = ((key.split("|"), cell) for key, cell in kept)
    return {(name, int(seed), way): cell for (name, seed, way), cell in parts}


def main():
    """Trains what is missing, measures, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--nets", nargs="*", default=list(nets.NETS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    facts = record.environment()
    command = "KERAS_BACKEND=torch python -m benchmarks.peers.channels"
    facts["command"] = f"{command} --seeds {given.seeds}"
    for package in PACKAGES:
        facts["versions"][package] = importlib.metadata.version(package)
    path = pathlib.Path(given.output, "peers_channels.json")
    stages = task.Stages(24, 10, 20) if given.quick else task.Stages()
    cells = known(path)
    for seed, name in itertools.product(range(given.seeds), given.nets):
        missing = [way for way in CONTESTANTS if (name, seed, way) not in cells]
        if not missing:
            continue
        wide = trained_wide(name, seed, stages)
        checked_copy(name, wide)
        for way in missing:
            try:
                cell = measured(name, seed, way, wide, stages)
            except ImportError as error:  # of one that is not installed
                print(name, seed, way, error, flush=True)
                continue
            cells[name, seed, way] = cell
            print(name, seed, way, cell, flush=True)
            report(given.output, facts, cells, {}, stages)
    times = {name: timed(name, cells) for name in given.nets}
    report(given.output, facts, cells, times, stages)


if __name__ == "__main__":
    main()
