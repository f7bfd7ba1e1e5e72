"""The tables of step_cost.py: which ratios it reports, and how they read.

Not run by itself; see step_cost.py.
"""

import statistics

import memory

# (what, numerator, denominator, the most we aim at or None)
STEP_RATIOS = (
    ("prunable at rest / plain wide", "at rest", "wide", 1.01),
    ("keeping score / plain wide", "tracking", "wide", 1.03),
    ("pruning / plain wide", "pruning", "wide", 1.03),
    ("pruning with its callback / plain wide", "pruning + callback", "wide", 1.03),
    ("noise: plain wide / plain wide", "wide again", "wide", None),
    ("compacted in place / built narrow", "compacted in place", "built narrow", 1.02),
    ("compact(model) / built narrow", "compact(model)", "built narrow", 1.02),
    ("built narrow / plain wide", "built narrow", "wide", None),
)


def ratio_row(what, ratio, aim):
    return [
        what,
        f"{ratio['median']:.3f}",
        f"{ratio['low']:.3f} to {ratio['high']:.3f}",
        f"{ratio['of_fast']:.3f}",
        "" if aim is None else f"{aim:.2f}",
    ]


def step_table(name, shape, timed):
    found = timed["ratios"]
    rows = [ratio_row(w, found[w], aim) for w, _, _, aim in STEP_RATIOS if w in found]
    typical = {
        name: 1000 * statistics.median(seconds)
        for name, seconds in timed["seconds per step"].items()
    }
    turns = len(timed["seconds per step"]["wide"])
    return {
        "title": f"Train step, {name}: {shape}",
        "columns": ["train step of", "median ratio", "95 %", "of quartiles", "aim"],
        "rows": rows,
        "notes": f"{turns} turns of {shape.steps_per_turn} steps each, paired; "
        f"{shape.tokens} tokens per step. Median, ms per step: "
        + ", ".join(f"{k} {v:.1f}" for k, v in typical.items())
        + ".",
    }


def memory_table(name, shape, held):
    wide, pruning, narrow = (held[kind] for kind in memory.KINDS)
    state = _variables(pruning) - _variables(wide)
    neurons = shape.num_layers * shape.hidden_dim
    at_2048 = state / neurons / (3 * 2048 * 4)
    rows = [
        ("variables: plain wide", _variables(wide), None, ""),
        ("variables: pruning / plain wide", *_pair(pruning, wide, _variables), ""),
        ("pruning state / parameters", state, state / wide["model variables"], ""),
        ("the same per neuron, at D = 2048", state // neurons, at_2048, "0.002"),
        ("peak training: plain wide", wide["training"], None, ""),
        ("peak training: pruning / plain wide", *_pair(pruning, wide), ""),
        (
            "peak while compacting in fit / training",
            pruning["compacting"],
            pruning["compacting"] / pruning["training"],
            "1.15",
        ),
        (
            "peak until the next step is done / training",
            pruning["first step after"],
            pruning["first step after"] / pruning["training"],
            "1.15",
        ),
        ("peak training: built narrow", narrow["training"], None, ""),
        (
            "peak training: compacted / built narrow",
            pruning["training after compaction"],
            pruning["training after compaction"] / narrow["training"],
            "",
        ),
    ]
    return {
        "title": f"Memory, {name}: {shape}",
        "columns": ["what", "bytes", "ratio", "aim"],
        "rows": [
            [what, _readable(size), "" if ratio is None else f"{ratio:.4f}", aim]
            for what, size, ratio, aim in rows
        ],
        "notes": "Variables: exact bytes of the model's and the optimizer's. Peaks: "
        "resident memory of a process of its own above what it held after its "
        "imports; with code and temporaries of the backend, so the ratios lie nearer "
        "to 1 than those of the arrays alone.",
    }


def _variables(held):
    return held["model variables"] + held["optimizer variables"]


def _pair(numerator, denominator, size=lambda held: held["training"]):
    return size(numerator), size(numerator) / size(denominator)


def _readable(size):
    return f"{size} B" if size < 10_000 else f"{size / 1e6:.1f} MB"


def import_table(imports):
    return {
        "title": "Import",
        "columns": ["time of", "median ratio", "95 %", "of quartiles", "aim"],
        "rows": [ratio_row("import keras_idea / import keras", imports["ratio"], 1.05)],
        "notes": f"{len(imports['seconds keras'])} processes; import keras "
        f"takes {statistics.median(imports['seconds keras']):.2f} s.",
    }
