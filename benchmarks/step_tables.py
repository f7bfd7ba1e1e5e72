"""The tables of step_cost.py: which ratios it reports, and how they read.

See step_cost.py.
"""

import statistics

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


def import_table(imports):
    return {
        "title": "Import",
        "columns": ["time of", "median ratio", "95 %", "of quartiles", "aim"],
        "rows": [ratio_row("import keras_idea / import keras", imports["ratio"], 1.05)],
        "notes": f"{len(imports['seconds keras'])} processes; import keras "
        f"takes {statistics.median(imports['seconds keras']):.2f} s.",
    }
