"""A whole run of a run file, watched: seconds and bytes of each step.

    KERAS_BACKEND=jax python benchmarks/whole_run.py RUN.toml

Random tokens, few steps, one device and float32 (`--help` says what else is set
otherwise than in the file): enough to see what the model's narrowing costs in the midst
of one `fit`. On 2 CPU cores about 5 minutes, 14 GB.
Writes benchmarks/results/whole_run-NAME-BACKEND.json and .md.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time

import keras
import memory
import numpy as np
import proof
import record

import keras_idea as ki
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.runs.config import load_config, tables
from keras_idea.lm.runs.models.build import pruning
from keras_idea.lm.runs.models.compiling import compiled
from keras_idea.lm.runs.models.hub_source import source_of_family
from keras_idea.lm.runs.models.outlines import outlines


class Watch(keras.callbacks.Callback):
    """Notes seconds, bytes and width of each step; it waits for the loss.

    A step's time and peak are those since the end of the step before: of the narrowing
    too, and of the compilation for it.
    """

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_begin(self, logs=None):
        """Begins to count."""
        # Not through `callback.model`: on jax that moves the state of the run.
        self._ffns = ki.find_ffns(self._model)
        self._go_on()

    def _go_on(self):
        memory.reset_peak()
        self._begin = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Notes the step."""
        loss = float(logs["loss"])
        self.steps.append(
            {
                "step": batch + 1,
                "seconds": time.perf_counter() - self._begin,
                "neurons": self._ffns[0].hidden_dim,
                "loss": loss,
                "resident": memory.rss(),
                "peak": memory.rss(peak=True),
                "device peak": memory.device_memory(),
            }
        )
        self._go_on()


def watched(model, prune, data, batch_size, width):
    """Fits a model and returns what `Watch` saw of each step.

    Raises:
        NotPrunedError: if the model does not end `width` neurons wide.
    """
    ids, targets = data
    watch = Watch()
    model.fit(
        token_inputs(model, ids),
        targets,
        batch_size=batch_size,
        shuffle=False,
        verbose=0,
        callbacks=[prune, watch],
    )
    ended = [step["neurons"] for step in watch.steps]
    proof.check_narrow("whole run", model, width)
    proof.expect("whole run", "neurons", ended, sorted(ended, reverse=True))
    proof.expect("whole run", "whether it was wider", ended[0] > width, True)
    return watch.steps


def summary(steps):
    """dict: typical seconds and bytes while wide, of the narrowing, while narrow.

    The first two steps of each program compile or place the state: they do not count.
    """
    widths = [step["neurons"] for step in steps]
    wide = [s for s in steps if s["neurons"] == widths[0]][2:]
    narrow = [s for s in steps if s["neurons"] == widths[-1]]
    at = next(i for i, width in enumerate(widths) if width == widths[-1])

    def typical(group):
        return {
            "seconds a step": statistics.median(s["seconds"] for s in group),
            "resident": statistics.median(s["resident"] for s in group),
            "peak": max(s["peak"] for s in group),
            "device peak": group[-1]["device peak"],
        }

    return {
        "wide": typical(wide),
        "narrowing": steps[at],
        "narrow": typical(narrow[2:]),
    }


def small(config, arguments):
    """The run file's run, small enough for one device."""
    steps = arguments.steps
    replace = dataclasses.replace
    budget = replace(
        config.budget, enlarge_steps=steps, prune_steps=steps + 2, recover_steps=steps
    )
    optimizer = replace(config.optimizer, warmup_steps=1, gradient_accumulation_steps=1)
    layers = arguments.num_layers or config.model.num_layers
    length = arguments.sequence_length
    return replace(
        config,
        model=replace(config.model, num_layers=layers, sequence_length=length),
        data=replace(config.data, batch_size=arguments.batch_size),
        budget=budget,
        optimizer=optimizer,
        pruning=replace(config.pruning, update_every=1, compact=arguments.compact),
        distribution=tables.DistributionConfig(),
        run=replace(
            config.run,
            dtype=arguments.dtype,
            rematerialize=False,
            validate_every=1,
            checkpoint_every=None,
        ),
    )


def main():
    arguments = _parse_arguments()
    facts = record.environment()
    config = small(load_config(arguments.config), arguments)
    keras.utils.set_random_seed(0)
    shape = config.model
    vocabulary = outlines(config).vocabulary_size
    base = memory.rss()
    begin = time.perf_counter()
    source = source_of_family(shape, shape.hub, vocabulary, config.run.dtype)
    model = compiled(config, source.wide())
    made = time.perf_counter() - begin
    width = shape.sizes_at_end(source.at_start).neurons
    prune = pruning(config.pruning, config.budget, {"neurons": width})
    steps = config.budget.total_steps
    size = (steps * config.data.batch_size, shape.sequence_length + 1)
    ids = np.random.default_rng(0).integers(vocabulary, size=size, dtype="int32")
    parameters = [model.count_params()]
    data = ids[:, :-1], ids[:, 1:]
    seen = watched(model, prune, data, config.data.batch_size, width)
    parameters.append(model.count_params())
    results = {
        "parameters": parameters,
        "resident before": base,
        "seconds to make": made,
        "steps": seen,
        "summary": summary(seen),
    }
    name = pathlib.Path(arguments.config).stem
    if arguments.num_layers is not None:
        name += f"-{arguments.num_layers}-layers"
    stem = f"whole_run-{name}-{keras.backend.backend()}"
    shown = [_table(name, arguments, results)]
    record.print_tables(shown)
    for path in record.write(arguments.output, stem, facts, results, shown):
        print(f"written: {path}")


def _parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a run file with model.hub")
    parser.add_argument("--batch-size", type=int, default=1, help="default 1")
    parser.add_argument("--sequence-length", type=int, default=32, help="default 32")
    parser.add_argument("--num-layers", type=int, help="default: the file's")
    parser.add_argument(
        "--steps", type=int, default=6, help="of enlarging and of recovery (default 6)"
    )
    parser.add_argument("--compact", default="end", choices=("end", "progressive"))
    parser.add_argument("--dtype", default="float32", help="default float32")
    parser.add_argument(
        "--output", default=record.REPOSITORY / "benchmarks" / "results"
    )
    return parser.parse_args()


def _table(name, arguments, results):
    said = results["summary"]
    base = results["resident before"]

    def row(what, of):
        peak = of["device peak"] or of["peak"] - base
        held = of["resident"] - base
        seconds = of.get("seconds a step", of.get("seconds"))
        return [what, f"{seconds:.2f}", f"{held / 2**30:.2f}", f"{peak / 2**30:.2f}"]

    wide, narrow = results["parameters"]
    return {
        "title": f"{name}: {wide:,} to {narrow:,} parameters",
        "columns": ["steps", "seconds", "GiB held", "GiB at most"],
        "rows": [
            row("wide", said["wide"]),
            row("the step that narrows", said["narrowing"]),
            row("narrow", said["narrow"]),
        ],
        "notes": f"Batch {arguments.batch_size} x {arguments.sequence_length} tokens, "
        f"{arguments.dtype}, compact={arguments.compact}; made in "
        f"{results['seconds to make']:.0f} s. Above what the process held after its "
        "imports.",
    }


if __name__ == "__main__":
    sys.exit(main())
