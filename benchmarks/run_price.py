"""What a whole run costs: enlarge, prune and recover, however the model gets narrow.

    KERAS_BACKEND=jax python benchmarks/run_price.py

One model masked to the end, one narrowed at the end of pruning, one progressively (on
jax with its steps compiled ahead too), and plain ones, wide and narrow, of the same
steps; each run from its first step, with every pause and compilation, one after the
other, in turns. About 10 minutes on 2 CPU cores, a backend.
Writes benchmarks/results/run_price-BACKEND.json, .md and .png (needs matplotlib).
"""

import argparse
import dataclasses
import gc
import statistics
import time

import keras
import proof
import record
from contestants import SHAPES, fit, make_data, make_model

import keras_idea as ki

STAGES = ("enlarge", "prune", "recover")


class Clock(keras.callbacks.Callback):
    """Seconds and neurons of each step, with the pause before it."""

    def __init__(self, model):
        super().__init__()
        # Not through `callback.model`: on jax that moves the state of the run.
        self._watched, self.seconds, self.neurons = model, [], []

    def on_train_begin(self, logs=None):
        """Begins to count."""
        self._ffns = ki.find_ffns(self._watched)
        self._at = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Waits for the step."""
        float(logs["loss"])
        now = time.perf_counter()
        self.seconds.append(now - self._at)
        self.neurons.append(self._ffns[0].hidden_dim)
        self._at = now


def ways(backend):
    """dict: name of a way to arguments of the callback, or to a plain model's width."""
    found = {
        "masked to the end": {"compact": "off"},
        "end": {"compact": "end"},
        "progressive": {"compact": "progressive"},
        "plain wide": "hidden_dim",
        "plain narrow": "target_dim",
    }
    if backend == "jax":
        ahead = {"compact": "progressive", "compile_ahead": True}
        found["progressive, ahead"] = ahead
    return found


def run(way, shape, steps):
    """dict: seconds and neurons of each step of one run."""
    keras.utils.set_random_seed(0)
    plain = isinstance(way, str)
    width = getattr(shape, way) if plain else shape.hidden_dim
    model = make_model("decoder", shape, width, prunable=not plain)
    clock, callbacks = Clock(model), []
    if not plain:
        callbacks = [ki.IdeaPruneCallback(shape.target_dim, *steps[:2], **way)]
    fit(model, shape, make_data(shape, sum(steps)), [*callbacks, clock])
    if not plain:
        check_run(way["compact"], model, clock.neurons, shape, steps)
    # Not what `fit` takes around its steps: on tensorflow up to 28 s, plain or not.
    whole = sum(clock.seconds)
    return {"seconds": clock.seconds, "neurons": clock.neurons, "whole": whole}


def check_run(compact, model, neurons, shape, steps):
    """Raises unless a run was pruned and narrowed as its `compact` says.

    Args:
        compact: "off", "end" or "progressive".
        model: the model at the end of its run.
        neurons: list of int, of an FFN's kernels after each step.
        shape: `Shape`.
        steps: list of int, steps of the three stages.

    Raises:
        NotPrunedError: if it was not.
    """
    wide, narrow = [shape.hidden_dim], [shape.target_dim]
    proof.check_narrow(compact, model, (wide if compact == "off" else narrow)[0])
    if compact == "off":
        proof.check_rows(compact, model, shape.target_dim)
        narrow = wide
    # The kernels are narrowed when the step after the stage begins.
    proof.expect(compact, "neurons at first", neurons[: steps[0]], wide * steps[0])
    proof.expect(compact, "neurons at last", neurons[-steps[2] :], narrow * steps[2])
    if compact == "progressive":
        proof.expect(compact, "neurons", neurons, sorted(neurons, reverse=True))
        between = len(set(neurons)) > 2
        proof.expect(compact, "whether widths lie between", between, True)


def by_stage(seconds, steps):
    """Seconds of each stage."""
    ends = [sum(steps[: i + 1]) for i in range(3)]
    return [sum(seconds[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def table(runs, shape, steps):
    """The table of a list of rounds, each a dict of name to what `run` gave."""
    rows, last = [], runs[0]["progressive"]
    for name in runs[0]:
        stages = [
            statistics.median(s)
            for s in zip(
                *(by_stage(r[name]["seconds"], steps) for r in runs), strict=True
            )
        ]
        whole = [r[name]["whole"] for r in runs]
        narrow = [r["plain narrow"]["whole"] for r in runs]
        ratios = sorted(a / b for a, b in zip(whole, narrow, strict=True))
        typical = statistics.median(runs[0][name]["seconds"][3 : steps[0]])
        rows.append(
            [name, *(f"{s:.1f}" for s in stages), f"{statistics.median(whole):.1f}"]
            + [f"{ratios[0]:.2f} to {ratios[-1]:.2f}", f"{1000 * typical:.0f}"]
        )
    changes = len(set(last["neurons"])) - 1
    return {
        "title": f"Whole runs of {' + '.join(map(str, steps))} steps: {shape}",
        "columns": ["run", *(f"{s}, s" for s in STAGES), "whole, s", "/ plain narrow"]
        + ["ms a step at first"],
        "rows": rows,
        "notes": f"{len(runs)} rounds, in turns: medians, and the range of the ratios. "
        f"Every compilation is in it. Progressive: {changes} changes of width.",
    }


def draw(path, runs, backend):
    """The first round's runs over time: neurons, and how long each step took."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True)
    for name, of in runs[0].items():
        if name.startswith("plain"):
            continue
        ends = [sum(of["seconds"][: i + 1]) for i in range(len(of["seconds"]))]
        label = f"{name}: {of['whole']:.0f} s"
        axes[0].step(ends, of["neurons"], where="post", label=label)
        axes[1].plot(ends, of["seconds"], ".-", markersize=3, linewidth=0.7)
    axes[0].set_ylabel("neurons of an FFN")
    axes[0].legend()
    axes[0].set_title(f"One run, {backend}: widths and pauses over time")
    axes[1].set_yscale("log")
    axes[1].set_ylabel("seconds a step, with the pause before it")
    axes[1].set_xlabel("seconds since the run began")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="large", choices=SHAPES)
    parser.add_argument("--steps", type=int, nargs=3, default=(60, 120, 60))
    parser.add_argument("--rounds", type=int, default=2, help="default 2")
    parser.add_argument(
        "--output", default=record.REPOSITORY / "benchmarks" / "results"
    )
    arguments = parser.parse_args()
    facts, backend = record.environment(), keras.backend.backend()
    shape, steps, runs = SHAPES[arguments.shape], list(arguments.steps), []
    names = ways(backend)
    for number in range(arguments.rounds):
        runs.append({})
        for name in list(names)[:: 1 if number % 2 == 0 else -1]:
            runs[-1][name] = run(names[name], shape, steps)
            print(f"round {number + 1}, {name}: {runs[-1][name]['whole']:.1f} s")
            gc.collect()
    shown = [table(runs, shape, steps)]
    record.print_tables(shown)
    results = {"shape": dataclasses.asdict(shape), "steps": steps, "rounds": runs}
    stem = f"run_price-{backend}"
    for path in record.write(arguments.output, stem, facts, results, shown):
        print(f"written: {path}")
    draw(path.with_suffix(".png"), runs, backend)


if __name__ == "__main__":
    main()
