"""What a step of `ki.distiller` costs, beside the same pair written out.

    KERAS_BACKEND=jax python benchmarks/distiller_cost.py --shape small

A stock Llama 3 learns from a copy of itself: by `ki.distiller`, and by Keras's
Distiller with the losses of each block written out (followed.py). Seconds per step in
turns; peak memory of each in a process of its own. Before that, both take four steps of
plain gradient descent, and their weights must agree. Writes
results/distiller_cost-BACKEND.json and .md.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys

import keras
import memory
import numpy as np
import record
from contestants import SHAPES, fit, make_data
from followed import NATS, distiller
from ratio import paired_ratio
from step_tables import ratio_row
from timing import time_in_turns

import keras_idea as ki
from keras_idea.hub.inputs import text_inputs

PAIRS = {
    "logits and blocks": ("ki.distiller", "written out"),
    "logits alone": ("ki.distiller, logits", "written out, logits"),
}
KINDS = ("student alone", *PAIRS["logits and blocks"], *PAIRS["logits alone"])
RATIOS = [*PAIRS.values(), ("ki.distiller", "student alone")]
MIB = 1 << 20


def make_task(shape):
    """A stock KerasHub task with random weights, which both pairs take."""
    import keras_hub

    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=shape.vocabulary_size,
        num_layers=shape.num_layers,
        num_query_heads=shape.num_heads,
        num_key_value_heads=shape.num_heads,
        hidden_dim=shape.model_dim,
        intermediate_dim=shape.hidden_dim,
        dtype=shape.dtype,
    )
    return keras_hub.models.Llama3CausalLM(backbone, preprocessor=None)


def make(kind, shape, optimizer=None):
    """The compiled model of a contestant; teacher and student differ."""
    keras.utils.set_random_seed(0)
    teacher, student = make_task(shape), make_task(shape)
    optimizer = optimizer or keras.optimizers.AdamW(ki.CosineDecay(1e-3, 1e-5, 100_000))
    student.compile(optimizer, NATS, weighted_metrics=None)
    features = not kind.endswith("logits")
    if kind == "student alone":
        model = keras.Model(student.input, student.output)
        model.compile(optimizer, NATS)
        return model
    if kind.startswith("ki."):
        return ki.distiller(teacher, student, features=features)
    ids = make_data(shape, 1)[0]
    sample = text_inputs(("token_ids", "padding_mask"), ids)
    follows = "teacher and features" if features else "teacher"
    pair, loss = distiller(teacher, student, follows, sample)
    pair.compile(optimizer, loss)
    return pair


def check_equal(shape):
    """Raises unless both ways train the same weights; the largest difference."""
    # One batch again and again: written out, a block is scaled by the sample's outputs.
    data = [np.tile(values, (4, 1)) for values in make_data(shape, 1)]
    apart = {}
    for what, names in PAIRS.items():
        trained = []
        for name in names:
            model = make(name, shape, keras.optimizers.SGD(0.1))
            before = [
                keras.ops.convert_to_numpy(v) for v in model.student.trainable_variables
            ]
            fit(model, shape, data)
            after = [
                keras.ops.convert_to_numpy(v) for v in model.student.trainable_variables
            ]
            trained.append([a - b for a, b in zip(after, before, strict=True)])
        moved = max(np.abs(each).max() for each in trained[0])
        far = max(np.abs(a - b).max() for a, b in zip(*trained, strict=True))
        if not far < 1e-3 * moved:
            raise SystemExit(f"{what}: weights moved by {moved}, and are {far} apart")
        apart[what] = {"moved by": float(moved), "apart": float(far)}
    return apart


def watch(kind, shape):
    """Bytes at most, above what the process held after its imports."""
    base = memory.rss()
    model = make(kind, shape)
    memory.reset_peak()
    fit(model, shape, make_data(shape, 6))
    return memory.device_memory() or memory.rss(peak=True) - base


def peaks(shape_name):
    """dict: kind -> bytes, each of a process of its own."""
    found = {}
    for kind in KINDS:
        command = [sys.executable, __file__, "--shape", shape_name, "--kind", kind]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        found[kind] = json.loads(done.stdout.splitlines()[-1])
    return found


def main():
    """Measures and writes, or is one of the measured processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--turns", type=int, default=None)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    shape = SHAPES[given.shape]
    if given.kind:
        print(json.dumps(watch(given.kind, shape)))
        return
    facts, apart = record.environment(), check_equal(shape)
    turns = given.turns or shape.steps // shape.steps_per_turn
    contestants = {kind: (make(kind, shape), []) for kind in KINDS}
    seconds = time_in_turns(contestants, shape, turns)
    held = peaks(given.shape)
    ratios = {
        f"{one} / {other}": dataclasses.asdict(
            paired_ratio(seconds[one], seconds[other])
        )
        for one, other in RATIOS
    }
    typical = {kind: 1000 * statistics.median(seconds[kind]) for kind in KINDS}
    tables = [
        {
            "title": f"Train step with a teacher, Llama 3 {given.shape}: {shape}",
            "columns": ["train step of", "median ratio", "95 %", "of quartiles"],
            "rows": [
                ratio_row(what, ratio, None)[:4] for what, ratio in ratios.items()
            ],
            "notes": f"{turns} turns of {shape.steps_per_turn} steps each, paired. "
            "Four steps of SGD: "
            + "; ".join(
                f"{what}, weights moved by up to {each['moved by']:.2g} and "
                f"{each['apart']:.2g} apart"
                for what, each in apart.items()
            ),
        },
        {
            "title": "Each of them",
            "columns": ["", "ms per step", "peak memory, MiB"],
            "rows": [
                [kind, f"{typical[kind]:.1f}", f"{held[kind] / MIB:.0f}"]
                for kind in KINDS
            ],
            "notes": "Memory above what the process held after its imports.",
        },
    ]
    record.print_tables(tables)
    stem = f"distiller_cost-{keras.backend.backend()}"
    results = {"ratios": ratios, "weights": apart, "peaks": held}
    record.write(given.output, stem, facts, results, tables)


if __name__ == "__main__":
    main()
