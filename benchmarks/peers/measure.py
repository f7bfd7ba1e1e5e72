"""What is read off the runs of one peer: ratios, seconds, widths, dead neurons."""

import dataclasses

import numpy as np

from benchmarks.ratio import paired_ratio

STAGES = ("enlarge", "prune", "recover")


def measure(shape, clock, ffns, wide, narrow):
    """The numbers of one row.

    Args:
        shape: `Shape`.
        clock: `Clock` of the peer's run.
        ffns: list of dicts of "gate", "up" and "down", `(neurons, dim)` each: the
            weights that the run ended with.
        wide: `Clock` of the plain wide model's run.
        narrow: `Clock` of the run of the model that was built narrow.

    Returns:
        dict, JSON-serializable.
    """
    steps = np.array(clock.widths)
    return {
        "ratios": {
            "waiting / wide": _ratio(shape, "enlarge", clock, wide),
            "pruning / wide": _ratio(shape, "prune", clock, wide),
            "afterwards / narrow": _ratio(shape, "recover", clock, narrow),
            "afterwards / wide": _ratio(shape, "recover", clock, wide),
        },
        "stages / wide": {
            stage: sum(clock.cpu[_stage(shape, stage)])
            / sum(wide.cpu[_stage(shape, stage)])
            for stage in STAGES
        },
        "whole run": {
            "peer": seconds(clock),
            "wide": seconds(wide),
            "narrow": seconds(narrow),
        },
        "widths": [len(ffn["gate"]) for ffn in ffns],
        "living": [int(living(ffn).sum()) for ffn in ffns],
        "zeros": [float(np.mean(_flat(ffn) == 0)) for ffn in ffns],
        "half way at step": _first(steps <= (shape.hidden_dim + shape.target_dim) / 2),
        "narrow at step": _first(steps <= 1.02 * shape.target_dim),
        **curve(clock),
    }


def curve(clock):
    """Losses, widths and seconds of each step, and the mean of the last losses."""
    return {
        "last loss": float(np.mean(clock.losses[-20:])),
        "losses": [round(loss, 5) for loss in clock.losses],
        "widths by step": clock.widths,
        "cpu seconds": [round(value, 5) for value in clock.cpu],
        "wall seconds": [round(value, 5) for value in clock.wall],
    }


def seconds(clock):
    """dict: process time and wall time of a whole run, compilations among them."""
    cpu, wall = sum(clock.cpu) + clock.rest[0], sum(clock.wall) + clock.rest[1]
    return {"cpu": cpu, "wall": wall}


def living(ffn):
    """Which neurons have weights in gate, up and down: a bool array."""
    return np.all([np.any(ffn[name] != 0, axis=1) for name in ffn], axis=0)


def _flat(ffn):
    return np.concatenate([values.ravel() for values in ffn.values()])


def _first(reached):
    return int(np.argmax(reached)) + 1 if reached.any() else None


def _stage(shape, stage):
    ends = {
        "enlarge": (0, shape.enlarge_steps),
        "prune": (shape.enlarge_steps, shape.end_step),
        "recover": (shape.end_step, shape.steps),
    }
    return slice(*ends[stage])


def _ratio(shape, stage, clock, rival):
    pair = [_turns(shape, stage, each) for each in (clock, rival)]
    return dataclasses.asdict(paired_ratio(*pair))


def _turns(shape, stage, clock):
    """The median step of each turn of a stage, but of the first, which compiles."""
    steps = np.array(clock.cpu[_stage(shape, stage)])
    return np.median(steps.reshape(-1, shape.steps_per_turn), axis=1)[1:]
