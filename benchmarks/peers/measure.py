"""What is read off the runs of one peer: ratios, seconds, widths, dead neurons."""

import dataclasses

import numpy as np

from benchmarks.ratio import paired_ratio

STAGES = ("enlarge", "prune", "recover")


def measure(shape, clocks, ffns, wide, narrow):
    """The numbers of one row.

    Args:
        shape: `Shape`.
        clocks: list of `Clock`, of the peer's run in each round.
        ffns: list of dicts of "gate", "up" and "down", `(neurons, dim)` each: the
            weights that the run ended with.
        wide: list of `Clock`, of the plain wide model's run in each round.
        narrow: list of `Clock`, of the run of the model that was built narrow.

    Returns:
        dict, JSON-serializable.
    """
    widths = np.array(clocks[0].widths)
    half = (shape.hidden_dim + shape.target_dim) / 2
    check_pruned(ffns, shape)
    return {
        "ratios": {
            "waiting / wide": _ratio(shape, "enlarge", clocks, wide),
            "pruning / wide": _ratio(shape, "prune", clocks, wide),
            "afterwards / wide": _ratio(shape, "recover", clocks, wide),
            "afterwards / narrow": _ratio(shape, "recover", clocks, narrow),
        },
        "stages / wide": {
            stage: _sum(shape, stage, clocks) / _sum(shape, stage, wide)
            for stage in STAGES
        },
        "whole run": {
            "peer": seconds(clocks),
            "wide": seconds(wide),
            "narrow": seconds(narrow),
        },
        "widths": [len(ffn["gate"]) for ffn in ffns],
        "living": [int(living(ffn).sum()) for ffn in ffns],
        "zeros": [float(np.mean(_flat(ffn) == 0)) for ffn in ffns],
        "half way at step": _first(widths <= half),
        "narrow at step": _first(widths <= shape.target_dim + 1),
        **curve(clocks[0]),
    }


def check_pruned(ffns, shape):
    """Raises unless each FFN has fewer neurons or zeros: who does nothing is quick.

    Args:
        ffns: list of dicts of "gate", "up" and "down", as of `measure`.
        shape: `Shape`.

    Raises:
        RuntimeError: if an FFN is as it was built.
    """
    for index, ffn in enumerate(ffns):
        if len(ffn["gate"]) >= shape.hidden_dim and np.all(_flat(ffn) != 0):
            raise RuntimeError(
                f"FFN {index} was not pruned: it has all its neurons and no zero. "
                f"Received: {len(ffn['gate'])} neurons of {shape.hidden_dim}. Repair "
                "the peer's script."
            )


def curve(clock):
    """Losses, widths and process time of each step, and the last losses' mean."""
    return {
        "last loss": float(np.mean(clock.losses[-20:])),
        "losses": [round(loss, 5) for loss in clock.losses],
        "widths by step": clock.widths,
        "cpu seconds": [round(value, 5) for value in clock.cpu],
    }


def seconds(clocks):
    """Process time and wall time of a whole run, the median of the rounds.

    Compilations are among them.
    """
    cpu = [sum(clock.cpu) + clock.rest[0] for clock in clocks]
    wall = [sum(clock.wall) + clock.rest[1] for clock in clocks]
    return {"cpu": float(np.median(cpu)), "wall": float(np.median(wall))}


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


def _sum(shape, stage, clocks):
    return sum(sum(clock.cpu[_stage(shape, stage)]) for clock in clocks)


def _ratio(shape, stage, clocks, rivals):
    pair = [
        np.concatenate([_turns(shape, stage, clock) for clock in group])
        for group in (clocks, rivals)
    ]
    return dataclasses.asdict(paired_ratio(*pair))


def _turns(shape, stage, clock):
    """The median step of each turn of a stage, but of the first, which compiles."""
    steps = np.array(clock.cpu[_stage(shape, stage)])
    return np.median(steps.reshape(-1, shape.steps_per_turn), axis=1)[1:]
