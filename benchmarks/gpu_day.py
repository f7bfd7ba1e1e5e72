"""One GPU, pieces of ten minutes: what has only been measured on CPUs.

    python -m benchmarks.gpu_day --scale gpu --minutes 9.5 --output FOLDER

Carries out piece after piece, each in a process of its own, until the minutes are over,
and goes on with the next one when it is called again; `--list` shows them. A piece that
is done (in FOLDER or in benchmarks/results/gpu_day) is not done again. Needs keras, jax
or torch, keras-hub, numpy, safetensors.
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
_JIT = {"auto": "auto", "eager": False, "compiled": True}


@dataclasses.dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
        kind: "steps" (ratios of step times) or "whole" (a fit through the narrowing).
        backend: "jax" or "torch".
        of: str, a key of `contestants.SHAPES`.
        option: str, of steps a key of `_JIT`; of a whole run how it compacts.
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
        Piece("whole", "jax", "tiny", "end"),
        Piece("whole", "torch", "tiny", "progressive"),
    ],
    "gpu": [
        Piece("steps", "jax", "paper-1.3b-layer", "auto"),
        Piece("steps", "torch", "paper-1.3b-layer", "eager"),
        Piece("whole", "torch", "paper-2.8b", "progressive"),
        Piece("steps", "torch", "paper-300m", "eager"),
        Piece("whole", "jax", "paper-300m", "end"),
        Piece("whole", "torch", "paper-300m", "end"),
        Piece("steps", "jax", "paper-300m", "auto"),
        Piece("steps", "torch", "paper-1.3b-layer", "compiled"),
        Piece("whole", "jax", "paper-300m", "progressive"),
        Piece("whole", "jax", "paper-2.8b", "end"),
    ],
}


def measure(piece):
    """dict: what a piece measures; in a process of its own."""
    from benchmarks import record
    from benchmarks.contestants import SHAPES

    shape = SHAPES[piece.of]
    found = {"steps": _steps, "whole": _whole}[piece.kind](shape, piece.option)
    facts = {**record.environment(), "piece": piece.name}
    return {**facts, "shape": dataclasses.asdict(shape), **found}


def _steps(shape, option):
    from benchmarks.contestants import make_contestants
    from benchmarks.ratio import paired_ratio
    from benchmarks.timing import check_contestants, time_in_turns

    turns = shape.steps // shape.steps_per_turn
    found = {"ratios": {}, "seconds": {}}
    for plain, ours in PAIRS:
        pair = make_contestants("decoder", shape, _JIT[option], (plain, ours))
        timed = time_in_turns(pair, shape, turns)
        check_contestants(pair, shape, turns)
        ratio = dataclasses.asdict(paired_ratio(timed[ours], timed[plain]))
        found["ratios"][f"{ours} / {plain}"] = ratio
        found["seconds"] |= {n: sorted(map(float, each)) for n, each in timed.items()}
        del pair
    return found


def _whole(shape, option):
    import keras

    import keras_idea as ki
    from benchmarks.contestants import make_data, make_model
    from benchmarks.whole_run import summary, watched

    keras.utils.set_random_seed(0)
    model = make_model("decoder", shape, shape.hidden_dim, True)
    prune = ki.IdeaPruneCallback(shape.target_dim, 8, 12, compact=option)
    begin = time.perf_counter()
    seen = watched(model, prune, make_data(shape, 32), shape)
    took = time.perf_counter() - begin
    return {"seconds of 32 steps": took, "summary": summary(seen), "steps": seen}


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
    command = [sys.executable, "-m", "benchmarks.gpu_day", "--scale", scale]
    environment = {**os.environ, "KERAS_BACKEND": piece.backend}
    try:
        ended = subprocess.run(
            [*command, "--piece", piece.name],
            env=environment,
            cwd=ROOT,
            timeout=seconds,
            capture_output=True,
            text=True,
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
