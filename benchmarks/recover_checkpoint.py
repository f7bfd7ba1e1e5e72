"""A checkpoint pruned: what it loses, and what recovery and a teacher give back.

    python examples/pretrain_llama3.py TEXT runs/small     # makes the checkpoint
    KERAS_BACKEND=jax python benchmarks/recover_checkpoint.py runs/small/preset TEXT

FFNs of a KerasHub preset are pruned to two widths by three methods, and recovered with
the preset itself as teacher and without: bits per byte of held-out text, mean and
standard error over the seeds; differences are of pairs, with the same seed and batches.
A cell that is done is kept in --folder and not done again. About two minutes a cell on
one CPU core, 54 cells.
Writes benchmarks/results/recover_checkpoint.json, .md and .png (needs matplotlib).
"""

import argparse
import itertools
import json
import math
import pathlib
import time

import keras
import keras_hub
import numpy as np
import record
from intervals import plus_minus

import keras_idea as ki

METHODS = ("sensitivity", "activation", "random")
# What follows the choice: nothing, training by the text, by text and teacher.
AFTER = ("nothing", "text", "teacher")
PRUNE, RECOVER, SCORED = 60, 180, 20
BATCH, LENGTH, PEAK = 16, 128, 1e-3
NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Study:
    """The checkpoint, its text, and how a cell is computed."""

    def __init__(self, preset, text):
        self.preset = preset
        causal_lm = keras_hub.models.CausalLMPreprocessor
        tokenizer = causal_lm.from_preset(preset).tokenizer
        self.corpus = ki.data.load_text(text).tokenized(
            ki.data.tokenizer_vocabulary(tokenizer), tokenizer.start_token_id
        )
        self.held_out = self.corpus.validation_windows(length=LENGTH)
        self.teacher = self.model()
        self.hidden_dim = self.teacher.backbone.intermediate_dim

    def model(self):
        """The checkpoint's model."""
        models = keras_hub.models.CausalLM
        return models.from_preset(self.preset, preprocessor=None)

    def bits(self, model):
        """Bits a byte of all held-out text."""
        ids, targets = self.held_out
        judge = keras.Model(model.inputs, model.outputs)
        judge.compile(loss=NATS, jit_compile=True)
        nats = judge.evaluate(inputs(ids), targets, batch_size=BATCH, verbose=0)
        return nats / self.corpus.bytes_per_token(targets) / math.log(2.0)

    def cell(self, width, method, after, seed, save_to=None):
        """Bits a byte of one cell."""
        keras.utils.set_random_seed(seed)
        model = self.model()
        if method == "random":
            method = ki.methods.Random(seed)
        elif method == "activation":
            size = {"batch_size": SCORED * BATCH, "length": LENGTH}
            samples, _ = self.corpus.batch(0, seed=seed, **size)
            method = ki.methods.Activation(inputs(samples), batch_size=BATCH)
        trained = self.untrained if after == "nothing" else self.recovered
        trained(model, width, method, seed, after == "teacher")
        narrow = ki.compact(model)
        if save_to is not None:
            preprocessor = keras_hub.models.CausalLMPreprocessor.from_preset(
                self.preset
            )
            task = type(narrow)(narrow.backbone, preprocessor=preprocessor)
            task.save_to_preset(save_to)
        return self.bits(narrow)

    def untrained(self, model, width, method, seed, _):
        """Neurons are ranked, and go at once; the weights stay as they are."""
        model.compile(keras.optimizers.SGD(0.0), NATS, weighted_metrics=None)
        prune = ki.IdeaPruneCallback(width, SCORED, 1, method=method)
        self.fit(model, seed, SCORED + 2, prune)

    def recovered(self, model, width, method, seed, taught):
        """One cosine over pruning and recovery."""
        schedule = ki.CosineDecay(PEAK, PEAK / 100, PRUNE + RECOVER, warmup_steps=20)
        model.compile(keras.optimizers.AdamW(schedule), NATS, weighted_metrics=None)
        fitted = model
        if taught:
            fitted = keras.distillation.Distiller(
                self.teacher,
                model,
                keras.distillation.LogitsDistillation(
                    temperature=1.0, loss=keras.losses.KLDivergence()
                ),
                student_loss_weight=0.5,
            )
            fitted.compile(model.optimizer, NATS)
        prune = ki.IdeaPruneCallback(width, 0, PRUNE, method=method)
        self.fit(fitted, seed, PRUNE + RECOVER, prune)

    def fit(self, model, seed, steps, prune):
        """Trains on the batches of a seed."""
        batches = self.corpus.batches(seed=seed, batch_size=BATCH, length=LENGTH)
        pairs = ((inputs(ids), targets) for ids, targets in batches)
        keras.Model.fit(
            model,
            pairs,
            steps_per_epoch=steps,
            shuffle=False,
            callbacks=[prune],
            verbose=0,
        )


def inputs(ids):
    """What a KerasHub model is given."""
    return {"token_ids": ids, "padding_mask": np.ones_like(ids)}


def key_of(width, method, after, seed):
    """The name of a cell."""
    return f"{width}-{method}-{after}-{seed}"


def compute(study, widths, seeds, folder, minutes):
    """dict: name of a cell to bits, as far as the time allows; it resumes."""
    path = folder / "cells.json"
    done = json.loads(path.read_text()) if path.exists() else {}
    until = time.monotonic() + 60 * minutes
    if "teacher" not in done:
        done["teacher"] = study.bits(study.teacher)
    # Seeds outermost: what is there, is there of all cells.
    for seed, after, method, width in itertools.product(
        range(seeds), AFTER, METHODS, widths
    ):
        name = key_of(width, method, after, seed)
        if name in done or time.monotonic() > until:
            continue
        first = (method, after, seed) == ("sensitivity", "teacher", 0)
        save_to = folder / f"preset-{width}" if first else None
        began = time.monotonic()
        done[name] = study.cell(width, method, after, seed, save_to)
        path.with_suffix(".new").write_text(json.dumps(done, indent=1))
        path.with_suffix(".new").rename(path)
        took = time.monotonic() - began
        print(f"{name}: {done[name]:.4f} bits per byte, {took:.0f} s", flush=True)
        keras.backend.clear_session(free_memory=True)
    return done


def samples(done, width, method, after, seeds):
    """Array of the bits of a cell's seeds; NaN where one was not computed."""
    keys = [key_of(width, method, after, seed) for seed in range(seeds)]
    return np.array([done.get(key, np.nan) for key in keys])


def mean_and_error(values, signed=False):
    """Mean and standard error of what was computed, as text."""
    values = values[~np.isnan(values)]
    if not len(values):
        return "not run"
    mean = f"{values.mean():{'+' if signed else ''}.4f}"
    if len(values) == 1:
        return f"{mean} (one seed)"
    error = values.std(ddof=1) / math.sqrt(len(values))
    return f"{mean} ± {error:.4f}"


def tables_of(done, widths, wide, seeds, text):
    """Two tables: bits of all cells, and differences of pairs."""

    def of(width, method, after):
        return samples(done, width, method, after, seeds)

    cells = list(itertools.product(widths, METHODS))
    bits = [
        [f"{width} ({1 - width / wide:.0%} fewer)", method]
        + [mean_and_error(of(width, method, after)) for after in AFTER]
        for width, method in cells
    ]
    pairs = []
    for width, method in cells:
        by_text, by_teacher = of(width, method, "text"), of(width, method, "teacher")
        best = of(width, "sensitivity", "text")
        row = [str(width), method, mean_and_error(by_teacher - by_text, signed=True)]
        row.append(
            ""
            if method == "sensitivity"
            else mean_and_error(by_text - best, signed=True)
        )
        pairs.append(row)
    return [
        {
            "title": f"Bits per byte; the checkpoint has {done['teacher']:.4f}",
            "columns": [
                "FFN width",
                "method",
                "pruned at once, not trained",
                "pruned and recovered",
                "with the teacher",
            ],
            "rows": bits,
            "notes": f"Held-out text: lower is better. {plus_minus([seeds])} "
            f"{PRUNE} steps of pruning (sensitivity) or one (the others), "
            f"{PRUNE + RECOVER} steps of {BATCH * LENGTH:,} tokens in all, under one "
            f"cosine of peak {PEAK}. Tokens are the checkpoint's, not bytes. {text}",
        },
        {
            "title": "Differences of pairs, bits per byte",
            "columns": [
                "FFN width",
                "method",
                "teacher - text alone",
                "method - sensitivity (text alone)",
            ],
            "rows": pairs,
            "notes": "Of runs with the same seed and batches; negative: the first is "
            "better.",
        },
    ]


def draw(path, done, widths, wide, seeds):
    """The cells with their errors, beside the checkpoint."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(widths), figsize=(9, 3.6), sharey=False)
    for axis, width in zip(axes, widths, strict=True):
        for i, after in enumerate(("text", "teacher")):
            for place, method in enumerate(METHODS):
                values = samples(done, width, method, after, seeds)
                values = values[~np.isnan(values)]
                if not len(values):
                    continue
                error = values.std(ddof=1) / math.sqrt(len(values)) if seeds > 1 else 0
                axis.errorbar(
                    place + 0.16 * (2 * i - 1),
                    values.mean(),
                    error,
                    fmt="os"[i],
                    color=("#888888", "#0072b2")[i],
                    capsize=3,
                    label=("text alone", "with the teacher")[i] if place == 0 else None,
                )
        axis.axhline(done["teacher"], color="black", linewidth=1, linestyle=":")
        axis.set_xticks(range(len(METHODS)), METHODS)
        axis.set_title(f"{width} of {wide} neurons", fontsize=10)
    axes[0].set_ylabel("bits per byte, held-out text")
    axes[0].legend(frameon=False, fontsize=9)
    figure.text(0.99, 0.01, "dotted: the checkpoint", ha="right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    """Computes what is missing, and writes tables and picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("preset")
    parser.add_argument("text")
    parser.add_argument("--widths", type=int, nargs="+", default=[352, 192])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--folder", default="runs/recover_checkpoint")
    parser.add_argument(
        "--output", default=str(record.REPOSITORY / "benchmarks/results")
    )
    given = parser.parse_args()
    facts = record.environment()
    folder = pathlib.Path(given.folder)
    folder.mkdir(parents=True, exist_ok=True)
    study = Study(given.preset, given.text)
    done = compute(study, given.widths, given.seeds, folder, given.minutes)
    # Without the machine's path.
    said = study.corpus.description.replace(given.text, pathlib.Path(given.text).name)
    text = f"Text: {said}."
    tables = tables_of(done, given.widths, study.hidden_dim, given.seeds, text)
    record.print_tables(tables)
    name = "recover_checkpoint"
    results = {"bits": done, "text": text}
    written = record.write(given.output, name, facts, results, tables)
    draw(
        written[0].with_suffix(".png"),
        done,
        given.widths,
        study.hidden_dim,
        given.seeds,
    )


if __name__ == "__main__":
    main()
