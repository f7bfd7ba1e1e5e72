"""One GPU, pieces of ten minutes: what has only been measured on CPUs.

    python benchmarks/gpu_day.py --scale gpu --minutes 9.5 --output FOLDER

Carries out piece after piece, each in a process of its own, until the minutes are over,
and goes on with the next one when it is called again; `--list` shows them. A piece that
is done (in FOLDER or in benchmarks/results/gpu_day) is not done again. Needs keras, jax
or torch, keras-hub, numpy, safetensors; a table of the paper also rich.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "gpu_day"
#: What is compared while pruning, and what afterwards: two models at a time.
PAIRS = (("wide", "pruning + callback"), ("built narrow", "compacted in place"))


@dataclasses.dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
        kind: "steps" (ratios of step times), "elastic" (of steps at a width),
            "teacher" (of steps with a teacher), "channels" (of a convolutional net's),
            "whole" (a fit through the narrowing) or "table" (the paper's).
        backend: "jax" or "torch".
        of: str, a key of `contestants.SHAPES`; of channels the number of images per
            batch; of a table its scale.
        option: str, of ratios "auto", "eager" or "compiled"; of a whole run how it
            compacts; of a table its number.
    """

    kind: str
    backend: str
    of: str
    option: str

    @property
    def name(self):
        """str, which the result's file has too."""
        return f"{self.kind}-{self.of}-{self.backend}-{self.option}"


SCALES = {
    "micro": [
        Piece("steps", "torch", "tiny", "eager"),
        Piece("elastic", "torch", "tiny", "eager"),
        Piece("teacher", "torch", "tiny", "eager"),
        Piece("channels", "torch", "1", "eager"),
        Piece("whole", "jax", "tiny", "end"),
        Piece("whole", "torch", "tiny", "progressive"),
    ],
    "gpu": [
        Piece("steps", "jax", "paper-1.3b-layer", "auto"),
        Piece("steps", "torch", "paper-1.3b-layer", "eager"),
        Piece("whole", "torch", "paper-2.8b", "progressive"),
        Piece("channels", "torch", "32", "eager"),
        Piece("elastic", "jax", "paper-1.3b-layer", "auto"),
        Piece("steps", "torch", "paper-300m", "eager"),
        Piece("whole", "jax", "paper-300m", "end"),
        Piece("whole", "torch", "paper-300m", "end"),
        Piece("channels", "jax", "32", "auto"),
        Piece("teacher", "torch", "paper-1.3b-layer", "eager"),
        Piece("steps", "jax", "paper-300m", "auto"),
        Piece("steps", "torch", "paper-1.3b-layer", "compiled"),
        Piece("whole", "jax", "paper-300m", "progressive"),
        Piece("whole", "jax", "paper-2.8b", "end"),
        Piece("table", "jax", "gpu", "1"),
    ],
}
_JIT = {"auto": "auto", "eager": False, "compiled": True}


def measure(piece):
    """dict: what a piece measures; in a process of its own."""
    import record

    facts = record.environment()
    device = facts["hardware"]["device"]
    measures = {
        "steps": lambda: _steps(piece),
        "elastic": lambda: _elastic(piece),
        "teacher": lambda: _teacher(piece),
        "channels": lambda: _channels(piece),
        "whole": lambda: _whole(piece, device),
        "table": lambda: _table(piece),
    }
    return {**facts, "piece": piece.name, **measures[piece.kind]()}


def _ratios(timed, pairs):
    """dict: the ratios of pairs of what was timed in turns, and all seconds."""
    from ratio import paired_ratio

    return {
        "ratios": {
            f"{one} / {other}": dataclasses.asdict(
                paired_ratio(timed[one], timed[other])
            )
            for one, other in pairs
        },
        "seconds": {name: sorted(map(float, each)) for name, each in timed.items()},
    }


def _steps(piece):
    from contestants import SHAPES, make_contestants
    from timing import check_contestants, time_in_turns

    shape = SHAPES[piece.of]
    turns = shape.steps // shape.steps_per_turn
    found = {"shape": dataclasses.asdict(shape), "ratios": {}, "seconds": {}}
    for plain, ours in PAIRS:
        pair = make_contestants("decoder", shape, _JIT[piece.option], (plain, ours))
        timed = time_in_turns(pair, shape, turns)
        check_contestants(pair, shape, turns)
        for key, values in _ratios(timed, [(ours, plain)]).items():
            found[key] |= values
        del pair
    return found


def _elastic(piece):
    from contestants import SHAPES
    from elastic_cost import contestants, ratio_pairs
    from timing import time_in_turns

    shape = SHAPES[piece.of]
    turns = shape.steps // shape.steps_per_turn
    timed = time_in_turns(contestants(shape, _JIT[piece.option]), shape, turns)
    return {"shape": dataclasses.asdict(shape), **_ratios(timed, ratio_pairs())}


def _teacher(piece):
    from contestants import SHAPES
    from distiller_cost import KINDS, RATIOS, check_equal, make
    from timing import time_in_turns

    shape = dataclasses.replace(SHAPES[piece.of], dtype="float32")
    apart = check_equal(shape)
    turns = min(12, shape.steps // shape.steps_per_turn)
    timed = time_in_turns(
        {kind: (make(kind, shape), []) for kind in KINDS}, shape, turns
    )
    return {
        "shape": dataclasses.asdict(shape),
        "weights": apart,
        **_ratios(timed, RATIOS),
    }


def _channels(piece):
    import channels_speed

    images = int(piece.of)
    name = "ResNet50" if images > 1 else "MobileNet"
    steps = {"turns": 8, "steps": 8} if images > 1 else {"turns": 1, "steps": 1}
    timed = channels_speed.step_times(name, images, **steps)
    pairs = [(each, "wide") for each in timed if each != "wide"]
    return {"model": name, "images per batch": images, **_ratios(timed, pairs)}


def _whole(piece, device):
    import keras
    from contestants import SHAPES, make_data, make_model
    from whole_run import summary, watched

    import keras_idea as ki
    from keras_idea.finding.work_count import multiply_adds
    from keras_idea.functional.counts import train_flops
    from keras_idea.lm.runs.plan.target_devices import DEVICE_KINDS

    shape = SHAPES[piece.of]
    keras.utils.set_random_seed(0)
    model = make_model("decoder", shape, shape.hidden_dim, True)
    prune = ki.IdeaPruneCallback(
        shape.target_dim, begin_step=8, prune_steps=12, compact=piece.option
    )
    count = multiply_adds(model, shape.sequence_length)
    begin = time.perf_counter()
    data = make_data(shape, 32)
    seen = watched(model, prune, data, shape.batch_size, shape.target_dim)
    took = time.perf_counter() - begin
    said = summary(seen)
    rate = train_flops(count, shape.tokens) / said["wide"]["seconds a step"]
    device = device.lower()
    peak = next(
        (kind.flops for name, kind in DEVICE_KINDS.items() if name in device), None
    )
    return {
        "shape": dataclasses.asdict(shape),
        "seconds of 32 steps": took,
        "summary": said,
        "operations a second, wide": rate,
        "utilisation, wide": None if peak is None else rate / peak,
        "steps": seen,
    }


def _table(piece):
    command = [sys.executable, "-m", "benchmarks.paper", "--table", piece.option]
    command += ["--scale", piece.of, "--seeds", "1", "--output", os.environ["CELLS"]]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    return {"table": piece.option}


def main():
    """Runs the command line."""
    arguments = _parse_arguments()
    pieces = {piece.name: piece for piece in SCALES[arguments.scale]}
    if arguments.piece is not None:
        print(json.dumps(measure(pieces[arguments.piece])))
        return
    output = pathlib.Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * arguments.minutes
    for name, piece in pieces.items():
        done = any((folder / f"{name}.json").exists() for folder in (output, RESULTS))
        left = until - time.monotonic()
        if arguments.list or done or left < 0:
            print(f"{name}: {'done' if done else 'to do'}", flush=True)
            continue
        print(f"{name}: {_carry_out(piece, arguments.scale, output, left)}", flush=True)


def _carry_out(piece, scale, output, seconds):
    """Says how a piece went; its result is written when it is whole."""
    command = [sys.executable, __file__, "--scale", scale, "--piece", piece.name]
    cells = {"CELLS": str(output / "cells"), "KERAS_BACKEND": piece.backend}
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **cells, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        ended = subprocess.run(
            command, env=environment, timeout=seconds, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return "not finished in the time that was left"
    if ended.returncode:
        (output / f"{piece.name}.failed.txt").write_text(ended.stderr[-20000:])
        return f"FAILED: {ended.stderr.strip().splitlines()[-1]}"
    path = output / f"{piece.name}.json"
    half = path.with_suffix(".half")
    half.write_text(json.dumps(json.loads(ended.stdout.splitlines()[-1]), indent=1))
    half.rename(path)
    return "done"


def _parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="gpu", choices=SCALES)
    parser.add_argument("--minutes", type=float, default=9.5, help="default 9.5")
    parser.add_argument(
        "--output", default=RESULTS, help="default: benchmarks/results/gpu_day"
    )
    parser.add_argument("--list", action="store_true", help="does nothing but list")
    parser.add_argument("--piece", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
