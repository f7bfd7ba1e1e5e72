"""What watching a run in TensorBoard costs: a train step with `log_dir` and without.

    KERAS_BACKEND=jax python benchmarks/monitor_cost.py

About four minutes on 2 CPU cores. Each turn is long enough to hold ten points and two
readings of the neurons, with their histograms and images, as often as by default.
Writes benchmarks/results/monitor_cost-BACKEND.json and .md.
"""

import argparse
import dataclasses
import tempfile

import keras
import record
from contestants import SHAPES, EndlessPruning, make_model
from ratio import paired_ratio
from step_tables import ratio_row
from timing import time_in_turns

import keras_idea as ki

STEPS_PER_TURN = 100
RATIOS = {
    "noise: the same twice": ("pruning again", "pruning"),
    "with the monitor": ("watched", "pruning"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--turns", type=int, default=9, help="default: 9")
    parser.add_argument(
        "--output",
        default=record.REPOSITORY / "benchmarks" / "results",
        help="folder, or a .json or .md file (default: benchmarks/results)",
    )
    arguments = parser.parse_args()
    facts = record.environment()
    shape = dataclasses.replace(SHAPES[arguments.shape], steps_per_turn=STEPS_PER_TURN)
    with tempfile.TemporaryDirectory() as log_dir:
        seconds = time_in_turns(contestants(shape, log_dir), shape, arguments.turns)
    ratios = {
        what: dataclasses.asdict(paired_ratio(seconds[a], seconds[b]))
        for what, (a, b) in RATIOS.items()
    }
    table = {
        "title": f"Train step while pruning, {arguments.shape}: {shape}",
        "columns": ["train step of", "median ratio", "95 %", "of quartiles", "aim"],
        "rows": [
            ratio_row(f"{what} / without", ratio, None)
            for what, ratio in ratios.items()
        ],
        "notes": f"{arguments.turns} turns of {STEPS_PER_TURN} steps each, paired.",
    }
    record.print_tables([table])
    results = {"shape": dataclasses.asdict(shape), "ratios": ratios}
    stem = f"monitor_cost-{keras.backend.backend()}"
    for path in record.write(arguments.output, stem, facts, results, [table]):
        print(f"written: {path}")


def contestants(shape, log_dir):
    """The same pruning model three times: plain twice, and watched."""
    span = {"begin_step": 0, "prune_steps": 100_000}

    def pruning(monitor=None):
        model = make_model("decoder", shape, shape.hidden_dim, prunable=True)
        prune = EndlessPruning(shape.target_dim, **span, log_dir=monitor)
        return model, [prune]

    monitor = ki.Monitor(log_dir, tokens_per_batch=shape.tokens)
    return {
        "pruning": pruning(),
        "pruning again": pruning(),
        "watched": pruning(monitor),
    }


if __name__ == "__main__":
    main()
