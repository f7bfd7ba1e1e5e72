"""What pruning costs: step time and import time, as ratios.

    KERAS_BACKEND=jax python -m benchmarks.step_cost
    KERAS_BACKEND=jax python -m benchmarks.step_cost --model llama3 --shape small
    KERAS_BACKEND=jax python -m benchmarks.step_cost --model smollm2 --shape smollm2 \
        --contestants wide "pruning + callback" "compacted in place" "built narrow"

On 2 CPU cores: about 10 minutes on jax, 8 on tensorflow and on torch, and longer
on a busy machine (the ratios stand it, their intervals widen).
Writes benchmarks/results/step_cost-BACKEND.json and .md; with `--model llama3`
(KerasHub's) step_cost-llama3-BACKEND.
"""

import argparse
import dataclasses
import gc
import json
import subprocess
import sys

import keras

from benchmarks import record
from benchmarks.contestants import MODELS, SHAPES, make_contestants
from benchmarks.ratio import paired_ratio
from benchmarks.step_tables import STEP_RATIOS, import_table, step_table
from benchmarks.timing import check_contestants, time_in_turns

IMPORT_RUNS = 7
IMPORT_CODE = """
import json, time
start = time.perf_counter(); import keras
middle = time.perf_counter(); import keras_idea
print(json.dumps([middle - start, time.perf_counter() - start]))
"""


def main():
    given = _parse_arguments()
    facts, results, tables = record.environment(), {"step": {}}, []
    for name in given.shape or ["small", "medium"]:
        shape = SHAPES[name]
        if given.steps is not None:
            shape = dataclasses.replace(shape, steps=given.steps)
        print(f"{name}: making and timing the models", flush=True)
        timed = measure_steps(given.model, shape, given.jit_compile, given.contestants)
        results["step"][name] = {"shape": dataclasses.asdict(shape), **timed}
        tables.append(step_table(name, shape, timed))
    results["import"] = measure_imports()
    tables.append(import_table(results["import"]))
    model = "" if given.model == "decoder" else f"{given.model}-"
    stem = f"step_cost-{model}{keras.backend.backend()}"
    record.write(given.output, stem, facts, results, tables)


def _parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="decoder", choices=MODELS)
    parser.add_argument(
        "--shape",
        action="append",
        choices=SHAPES,
        help="shape to time; may be repeated (default: small and medium)",
    )
    parser.add_argument("--steps", type=int, help="timed steps of each model")
    parser.add_argument(
        "--contestants",
        nargs="+",
        metavar="NAME",
        help="some of them: a large model has no room for all (default: all)",
    )
    parser.add_argument(
        "--jit-compile",
        action="store_const",
        const=True,
        default="auto",
        help="compile with jit_compile=True (default: what Keras chooses)",
    )
    parser.add_argument("--output", default=record.RESULTS, help="folder")
    return parser.parse_args()


def measure_steps(kind, shape, jit_compile, names=None, on_turn=lambda: None):
    """Seconds per step of each contestant, and the ratios of `STEP_RATIOS`.

    Raises:
        NotPrunedError: if a pruner did nothing, or a narrow model is not narrow.
    """
    turns = max(1, shape.steps // shape.steps_per_turn)
    contestants = make_contestants(kind, shape, jit_compile, names)
    seconds = time_in_turns(contestants, shape, turns, on_turn)
    check_contestants(contestants, shape, turns)
    contestants.clear()
    gc.collect()
    ratios = {
        what: dataclasses.asdict(paired_ratio(seconds[a], seconds[b]))
        for what, a, b, _ in STEP_RATIOS
        if {a, b} <= seconds.keys()
    }
    turns_of = {name: [float(t) for t in values] for name, values in seconds.items()}
    return {"ratios": ratios, "seconds per step": turns_of}


def measure_imports():
    """Seconds of `import keras` and of `import keras_idea`, which includes it."""
    command, pairs = [sys.executable, "-c", IMPORT_CODE], []
    for _ in range(IMPORT_RUNS + 1):
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        pairs.append(json.loads(process.stdout.splitlines()[-1]))
    alone, both = zip(*pairs[1:], strict=True)  # the first fills the system's cache
    return {
        "seconds keras": alone,
        "seconds keras_idea": both,
        "ratio": dataclasses.asdict(paired_ratio(both, alone)),
    }


if __name__ == "__main__":
    main()
