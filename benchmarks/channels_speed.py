"""How much faster a convolutional network is without half of its channels.

    KERAS_BACKEND=torch python benchmarks/channels_speed.py

Models of `keras.applications` at 224 pixels, with random weights: the wide one and the
one without half of each group's channels; also the wide one again (the noise), and in
the middle of pruning. A train step in `fit` and a call of `predict_on_batch`, in turns
in one process. Seconds are process time of one thread, so a busy machine disturbs
little. Cells that the result file has are kept. Writes
results/channels_speed-BACKEND.json and .md, after each cell.
"""

import argparse
import dataclasses
import datetime
import gc
import itertools
import json
import os
import pathlib
import statistics
import time

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"

import keras
import numpy as np
import record
import timing
from channels_exact import work
from contestants import EndlessPruning
from keras import applications
from proof import expect
from ratio import paired_ratio

import keras_idea as ki

#: Steps of a `fit` that do not count: the first makes the iterator, or moves the state.
LEAD_IN = 1
PIXELS = 224
MODELS = ("ResNet50", "MobileNetV2")
BATCHES = (1, 8)
RATIOS = ("narrow", "pruning", "wide again")
COLUMNS = (
    "model, images per batch",
    "what",
    "wide, ms",
    "narrow, ms",
    "narrow / wide (95 %)",
    "pruning / wide (95 %)",
    "noise: wide / wide (95 %)",
    "multiply-adds, narrow / wide",
    "parameters, narrow / wide",
)


def compiled(model):
    """The model, ready for `fit`."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), loss)
    return model


def made(name):
    """A wide model with random weights."""
    keras.utils.set_random_seed(0)
    make = getattr(applications, name)
    return make(
        weights=None, input_shape=(PIXELS, PIXELS, 3), classifier_activation=None
    )


def contestants(name):
    """dict: name -> (compiled model, callbacks)."""
    wide = compiled(made(name))
    narrow = ki.shrink(wide, {"channels": 0.5}, method="magnitude")
    full, left = (
        [group.hidden_dim for group in ki.find_groups(model)]
        for model in (wide, narrow)
    )
    expect(name, "channels", left, [count // 2 for count in full])
    how = {"begin_step": 0, "prune_steps": 10_000}
    return {
        "wide": (wide, []),
        "narrow": (compiled(narrow), []),
        "wide again": (wide, []),
        "pruning": (
            compiled(made(name)),
            [EndlessPruning(targets={"channels": 0.5}, **how)],
        ),
    }


class CpuClock(keras.callbacks.Callback):
    """Notes the process time at each step's end."""

    def on_train_begin(self, logs=None):
        """Forgets the last turn."""
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        """Waits for the loss."""
        float(logs["loss"])
        self.ends.append(time.process_time())

    def seconds(self):
        """Mean of the steps that count."""
        counted = self.ends[LEAD_IN - 1 :]
        return (counted[-1] - counted[0]) / (len(counted) - 1)


def step_time(contestant, x, y, steps):
    """Seconds of a train step in one short `fit`."""
    (model, callbacks), clock = contestant, CpuClock()
    model.fit(
        (each for each in itertools.repeat((x, y))),
        steps_per_epoch=LEAD_IN + steps,
        shuffle=False,
        callbacks=[*callbacks, clock],
        verbose=0,
    )
    return clock.seconds()


def prediction_time(contestant, x, calls):
    """Seconds of a prediction."""
    start = time.process_time()
    for _ in range(calls):
        np.asarray(contestant[0].predict_on_batch(x))
    return (time.process_time() - start) / calls


def in_turns(names, turns, measure):
    """dict: name -> what `measure(name)` says in each turn; a first one compiles."""
    seconds = {name: [] for name in names}
    for turn in range(turns + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found = measure(name)
            if turn:
                seconds[name].append(found)
    return seconds


def compared(seconds):
    """dict: medians in ms, and the ratios to the wide model."""
    medians = {k: 1000.0 * statistics.median(each) for k, each in seconds.items()}
    ratios = {
        name: dataclasses.asdict(paired_ratio(seconds[name], seconds["wide"]))
        for name in RATIOS
        if name in seconds
    }
    return {"ms": medians, "ratios": ratios}


def images(batch):
    """A batch of noise, and labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, PIXELS, PIXELS, 3)).astype("float32")
    return x, rng.integers(0, 1000, batch)


def step_times(name, batch, turns, steps):
    """dict: name -> seconds of a train step in each turn, by the clock on the wall."""
    found, (x, y) = contestants(name), images(batch)

    def turn_of(model, callbacks):
        return lambda clock: model.fit(
            (each for each in itertools.repeat((x, y))),
            steps_per_epoch=timing.LEAD_IN + steps,
            shuffle=False,
            callbacks=[*callbacks, clock],
            verbose=0,
        )

    fits = {name: turn_of(*contestant) for name, contestant in found.items()}
    return timing.step_seconds(fits, turns)


def measured(name, batch, turns, calls):
    """dict: what a cell of the results says."""
    found = contestants(name)
    wide, narrow = found["wide"][0], found["narrow"][0]
    x, y = images(batch)
    cell = {
        "date": datetime.date.today().isoformat(),
        "load average": os.getloadavg()[0],
        "multiply-adds": [float(work(model)) for model in (wide, narrow)],
        "parameters": [model.count_params() for model in (wide, narrow)],
        "turns": turns,
        "calls per turn": calls,
    }
    names = [kind for kind in found if kind != "pruning"]
    seconds = in_turns(names, turns, lambda k: prediction_time(found[k], x, calls))
    cell["prediction"] = compared(seconds)
    seconds = in_turns(list(found), turns, lambda k: step_time(found[k], x, y, calls))
    cell["train step"] = compared(seconds)
    return cell


def interval(ratios, name):
    """A ratio with its interval, or nothing."""
    if name not in ratios:
        return ""
    ratio = ratios[name]
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f})"


def rows(label, cell):
    """The two lines of a cell."""
    for what in ("train step", "prediction"):
        ms, ratios = cell[what]["ms"], cell[what]["ratios"]
        sizes = [cell[key] for key in ("multiply-adds", "parameters")]
        yield [
            label,
            what,
            *(f"{ms[name]:.0f}" for name in ("wide", "narrow")),
            *(interval(ratios, name) for name in RATIOS),
            *(f"{narrow / wide:.2f}" for wide, narrow in sizes),
        ]


def report(path, facts, cells):
    """Writes the table of the cells so far."""
    table = {
        "title": f"Half of the channels, {PIXELS} pixels, float32",
        "columns": list(COLUMNS),
        "rows": [row for label, cell in cells.items() for row in rows(label, cell)],
        "notes": "Process time of one thread: median of the turns, and of the ratios "
        "of turns of the same round. "
        "Turns of each cell: "
        + ", ".join(f"{cell['turns']}" for cell in cells.values())
        + "; steps or calls of a turn: "
        + ", ".join(f"{cell['calls per turn']}" for cell in cells.values())
        + ". Multiply-adds are this package's own count, of one image.",
    }
    record.write(path, path.stem, facts, {"cells": cells}, [table])


def main():
    """Measures the cells that are missing, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    stem = f"channels_speed-{keras.backend.backend()}.json"
    path, facts = pathlib.Path(given.output, stem), record.environment()
    cells = json.loads(path.read_text())["cells"] if path.exists() else {}
    for name, batch in itertools.product(given.models, given.batches):
        label = f"{name}, {batch}"
        if label not in cells:
            calls = 2 if batch == 1 else 1
            cells[label] = measured(name, batch, given.turns, calls)
            print(label, cells[label], flush=True)
            report(path, facts, cells)
        keras.backend.clear_session()
        gc.collect()


if __name__ == "__main__":
    main()
