"""What a train step at each width of an `ElasticCallback` costs.

    KERAS_BACKEND=jax python benchmarks/elastic_cost.py

This package's decoder with an elastic callback that draws one width alone, beside one
built so narrow, and at full width beside a plain one: seconds per step in turns,
as step_cost.py times them. Writes results/elastic_cost-BACKEND.json and .md.
"""

import argparse
import dataclasses
import statistics

import keras
import record
from contestants import SHAPES, make_model
from ratio import paired_ratio
from step_tables import ratio_row
from timing import time_in_turns

import keras_idea as ki

SHARES = {"full": 1.0, "half": 0.5, "quarter": 0.25}
#: A probability that no step draws.
NEVER = 1e-15


def at_width(name):
    """A callback all of whose steps are at one width, as in the midst of a run."""
    if name == "full":
        sample = {"quarter": NEVER, "full": 1.0 - NEVER}
        return ki.ElasticCallback({"quarter": SHARES["quarter"]}, sample=sample)
    return ki.ElasticCallback({name: SHARES[name]}, sample={name: 1.0})


def contestants(shape, jit_compile="auto"):
    """dict: name -> (compiled model, callbacks)."""

    def make(width):
        return make_model("decoder", shape, width, False, jit_compile)

    found = {"built full again": (make(shape.hidden_dim), [])}
    for name, share in SHARES.items():
        width = round(share * shape.hidden_dim)
        found[f"built {name}"] = (make(width), [])
        found[f"elastic {name}"] = (make(shape.hidden_dim), [at_width(name)])
    return found


def ratio_pairs():
    """The names of what is compared, two at a time."""
    pairs = [(f"elastic {name}", f"built {name}") for name in SHARES]
    pairs += [(f"elastic {name}", "built full") for name in ("half", "quarter")]
    return [*pairs, ("built full again", "built full")]


def main():
    """Times the contestants, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--turns", type=int, default=None)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts, shape = record.environment(), SHAPES[given.shape]
    turns = given.turns or shape.steps // shape.steps_per_turn
    seconds = time_in_turns(contestants(shape), shape, turns)
    ratios = {
        f"{one} / {other}": dataclasses.asdict(
            paired_ratio(seconds[one], seconds[other])
        )
        for one, other in ratio_pairs()
    }
    typical = {name: 1000 * statistics.median(each) for name, each in seconds.items()}
    table = {
        "title": f"Train step at a width, {given.shape}: {shape}",
        "columns": ["train step of", "median ratio", "95 %", "of quartiles"],
        "rows": [ratio_row(what, ratio, None)[:4] for what, ratio in ratios.items()],
        "notes": f"{turns} turns of {shape.steps_per_turn} steps each, paired. Median, "
        "ms per step: "
        + ", ".join(f"{name} {each:.1f}" for name, each in typical.items()),
    }
    record.print_tables([table])
    stem = f"elastic_cost-{keras.backend.backend()}"
    record.write(given.output, stem, facts, {"ratios": ratios}, [table])


if __name__ == "__main__":
    main()
