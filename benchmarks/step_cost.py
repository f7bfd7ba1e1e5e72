"""What pruning costs: step time, memory and import time, all as ratios.

    KERAS_BACKEND=jax python benchmarks/step_cost.py
    KERAS_BACKEND=jax python benchmarks/step_cost.py --shape small --steps 24
    KERAS_BACKEND=jax python benchmarks/step_cost.py --model llama3 --shape small
    KERAS_BACKEND=jax python benchmarks/step_cost.py --model smollm2 --shape smollm2 \
        --contestants wide "pruning + callback" "compacted in place" "built narrow"

On 2 CPU cores: about 10 minutes on jax, 8 on tensorflow and on torch, and longer
on a busy machine (the ratios stand it, their intervals widen). On one GPU, not
tried yet: `--shape paper-1.3b-layer --memory-shape paper-1.3b-layer`.
Writes benchmarks/results/step_cost-BACKEND.json and .md; with `--model llama3`
(KerasHub's; no memory) step_cost-llama3-BACKEND.
"""

import argparse
import dataclasses
import gc
import json
import subprocess
import sys

import keras
import memory
import record
import rich.console
import rich.progress
from contestants import MODELS, SHAPES, make_contestants
from ratio import paired_ratio
from step_tables import STEP_RATIOS, import_table, memory_table, step_table
from timing import check_contestants, time_in_turns

IMPORT_RUNS = 7
IMPORT_CODE = """
import json, time
start = time.perf_counter(); import keras
middle = time.perf_counter(); import keras_idea
print(json.dumps([middle - start, time.perf_counter() - start]))
"""


def main():
    arguments = _parse_arguments()
    console = rich.console.Console()
    facts = record.environment()
    backend = keras.backend.backend()
    console.print(f"step_cost on {backend}, keras {keras.__version__}, {facts['date']}")
    results, tables = {"step": {}, "memory": {}, "import": {}}, []
    with _progress(console) as progress:
        for name in arguments.shape:
            shape = _with_steps(SHAPES[name], arguments.steps)
            timed = measure_steps(
                arguments.model,
                shape,
                arguments.jit_compile,
                name,
                progress,
                arguments.contestants,
            )
            results["step"][name] = {"shape": dataclasses.asdict(shape), **timed}
            tables.append(step_table(name, shape, timed))
        if arguments.memory_shape != "none":
            name = arguments.memory_shape
            held = measure_memory(name, arguments.jit_compile, progress)
            shape = SHAPES[name]
            results["memory"] = {"shape": dataclasses.asdict(shape), **held}
            tables.append(memory_table(name, shape, held))
        results["import"] = measure_imports(progress)
        tables.append(import_table(results["import"]))
    record.print_tables(tables)
    model = "" if arguments.model == "decoder" else f"{arguments.model}-"
    stem = f"step_cost-{model}{backend}"
    for path in record.write(arguments.output, stem, facts, results, tables):
        console.print(f"written: {path}")


def _parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", default="decoder", choices=MODELS, help="default: decoder"
    )
    parser.add_argument(
        "--shape",
        action="append",
        choices=SHAPES,
        help="shape to time; may be repeated (default: small and medium)",
    )
    parser.add_argument(
        "--steps", type=int, help="timed steps of each model (default: by shape)"
    )
    parser.add_argument(
        "--contestants",
        nargs="+",
        metavar="NAME",
        help="some of them: a large model has no room for all (default: all)",
    )
    parser.add_argument(
        "--memory-shape",
        default="parameters",
        choices=[*SHAPES, "none"],
        help="shape whose memory is measured (default: parameters)",
    )
    parser.add_argument(
        "--jit-compile",
        action="store_const",
        const=True,
        default="auto",
        help="compile with jit_compile=True (default: what Keras chooses)",
    )
    parser.add_argument(
        "--output",
        default=record.REPOSITORY / "benchmarks" / "results",
        help="folder, or a .json or .md file (default: benchmarks/results)",
    )
    arguments = parser.parse_args()
    arguments.shape = arguments.shape or ["small", "medium"]
    if arguments.model != "decoder":
        arguments.memory_shape = "none"
    if arguments.steps is not None and arguments.steps < 1:
        parser.error(f"--steps must be at least 1. Received: {arguments.steps}.")
    return arguments


def _progress(console):
    return rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        console=console,
    )


def _with_steps(shape, steps):
    return shape if steps is None else dataclasses.replace(shape, steps=steps)


def measure_steps(kind, shape, jit_compile, name, progress, names=None):
    """Seconds per step of each contestant, and the ratios of `STEP_RATIOS`.

    Raises:
        NotPrunedError: if a pruner did nothing, or a narrow model is not narrow.
    """
    turns = max(1, shape.steps // shape.steps_per_turn)
    task = progress.add_task(f"{name}: making the models", total=None)
    contestants = make_contestants(kind, shape, jit_compile, names)
    total = (turns + 1) * len(contestants)
    progress.update(task, description=f"{name}: turns", total=total)
    seconds = time_in_turns(contestants, shape, turns, lambda: progress.advance(task))
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


def measure_memory(shape_name, jit_compile, progress):
    """Bytes held by each kind of model, each in its own process."""
    task = progress.add_task(f"{shape_name}: memory", total=len(memory.KINDS))
    held = {}
    for kind in memory.KINDS:
        held[kind] = memory.measure_in_child(shape_name, kind, jit_compile)
        progress.advance(task)
    return held


def measure_imports(progress):
    """Seconds of `import keras` and of `import keras_idea`, which includes it."""
    task = progress.add_task("imports", total=IMPORT_RUNS)
    pairs = []
    # The first one fills the system's file cache.
    for run in range(IMPORT_RUNS + 1):
        command = [sys.executable, "-c", IMPORT_CODE]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        if run:
            pairs.append(json.loads(process.stdout.splitlines()[-1]))
            progress.advance(task)
    alone, both = zip(*pairs, strict=True)
    return {
        "seconds keras": alone,
        "seconds keras_idea": both,
        "ratio": dataclasses.asdict(paired_ratio(both, alone)),
    }


if __name__ == "__main__":
    main()
