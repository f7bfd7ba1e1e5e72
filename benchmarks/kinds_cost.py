"""What a second kind of units costs a train step: heads beside neurons.

    KERAS_BACKEND=jax python benchmarks/kinds_cost.py

KerasHub's Mistral as it is, with its neurons in the middle of pruning, and with neurons
and key/value heads: seconds per step in turns, as step_cost.py times them, and the
bytes that pruning holds beside the model. Fails unless the neurons, and the heads, have
gone by the schedule. Three minutes. Writes results/kinds_cost-BACKEND.json and .md.
"""

import argparse
import dataclasses
import math
import statistics

import keras
import keras_hub
import proof
import record
from contestants import SHAPES, EndlessPruning, pruning_stage
from ratio import paired_ratio
from step_tables import ratio_row
from timing import LEAD_IN, time_in_turns

import keras_idea as ki

KV_GROUPS = 4
KINDS = {"neurons": ["neurons"], "neurons and heads": ["neurons", "kv_groups"]}
RATIOS = (
    ("neurons / not pruned", "neurons", "not pruned"),
    ("neurons and heads / not pruned", "neurons and heads", "not pruned"),
    ("neurons and heads / neurons", "neurons and heads", "neurons"),
    ("noise: not pruned / not pruned", "not pruned again", "not pruned"),
)


def make(shape):
    """A compiled Mistral of twice as many query heads as key/value heads."""
    backbone = keras_hub.models.MistralBackbone(
        vocabulary_size=shape.vocabulary_size,
        num_layers=shape.num_layers,
        num_query_heads=2 * KV_GROUPS,
        num_key_value_heads=KV_GROUPS,
        hidden_dim=shape.model_dim,
        intermediate_dim=shape.hidden_dim,
        sliding_window=shape.sequence_length,
    )
    task = keras_hub.models.MistralCausalLM(backbone=backbone, preprocessor=None)
    model = keras.Model(task.input, task.output)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-3), loss)
    return model


def contestants(shape):
    """dict: name -> (compiled model, callbacks)."""
    targets = {"neurons": shape.target_dim, "kv_groups": 2}
    found = {"not pruned": (make(shape), []), "not pruned again": (make(shape), [])}
    for name, kinds in KINDS.items():
        prune = EndlessPruning(
            targets={kind: targets[kind] for kind in kinds}, **pruning_stage(shape)
        )
        found[name] = make(shape), [prune]
    return found


def check(found, shape, steps):
    """Raises unless each kind is where its schedule says; the bytes of each state."""
    held = {}
    full = {"neurons": shape.hidden_dim, "kv_groups": KV_GROUPS}
    last = {"neurons": shape.target_dim, "kv_groups": 2}
    for name, kinds in KINDS.items():
        model = found[name][0]
        groups = ki.find_groups(model)
        for group in groups:
            width = full[group.kind]
            if group.kind in kinds:
                schedule = ki.CubicWidth(
                    width, last[group.kind], **pruning_stage(shape)
                )
                width = schedule(steps)
            proof.expect(name, f"active {group.kind}", group.width, width)
        variables = [v for g in groups if g.kind in kinds for v in g.state.variables]
        held[name] = sum(4 * math.prod(v.shape) for v in variables)
    return held


def main():
    """Times the contestants, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts, shape = record.environment(), SHAPES[given.shape]
    turns = shape.steps // shape.steps_per_turn
    found = contestants(shape)
    seconds = time_in_turns(found, shape, turns)
    held = check(found, shape, (turns + 1) * (LEAD_IN + shape.steps_per_turn))
    parameters = found["not pruned"][0].count_params()
    ratios = {
        what: dataclasses.asdict(paired_ratio(seconds[one], seconds[other]))
        for what, one, other in RATIOS
    }
    typical = {name: 1000 * statistics.median(each) for name, each in seconds.items()}
    table = {
        "title": f"Train step of a Mistral, {given.shape}: {shape}, "
        f"{2 * KV_GROUPS} query heads, {KV_GROUPS} key/value heads -> 2",
        "columns": ["train step of", "median ratio", "95 %", "of quartiles"],
        "rows": [ratio_row(what, ratio, None)[:4] for what, ratio in ratios.items()],
        "notes": f"{turns} turns of {shape.steps_per_turn} steps each, paired. Median, "
        "ms per step: "
        + ", ".join(f"{name} {each:.1f}" for name, each in typical.items())
        + ". Scores, masks and counters of pruning: "
        + ", ".join(f"{name} {size:,} bytes" for name, size in held.items())
        + f"; the model has {parameters:,} parameters of 4 bytes.",
    }
    record.print_tables([table])
    results = {"ratios": ratios, "bytes": held}
    stem = f"kinds_cost-{keras.backend.backend()}"
    record.write(given.output, stem, facts, results, [table])


if __name__ == "__main__":
    main()
