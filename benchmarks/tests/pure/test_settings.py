"""The figures of docs/recommended_settings.md, computed from the records."""

import json
import re

import numpy as np
import pytest
import scipy.stats

from benchmarks.paper.regime import needed_seeds
from tests.support import ROOT
from tests.support.recorded import RESULTS, bits, cells, difference

PAGE = ROOT / "docs" / "recommended_settings.md"


def page():
    return " ".join(PAGE.read_text(encoding="utf-8").split())


def record(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def paired(one, other):
    """Mean of the differences and its standard error."""
    gaps = np.subtract(one, other)
    return gaps.mean(), scipy.stats.sem(gaps)


def checkpoint(width, method, after):
    """recover_checkpoint: bits of three seeds."""
    bits = record("recover_checkpoint")["bits"]
    return [bits[f"{width}-{method}-{after}-{seed}"] for seed in range(3)]


def shape(parameters, arm):
    """recover_shapes: bits of three seeds."""
    cells = record("recover_shapes")["cells"]
    return [cells[f"{parameters}/{arm}/{seed}"]["bits"] for seed in range(3)]


def row(table, name):
    """A row of a table of the paper's kind, by seed."""
    rows = record(f"paper/{table}")["rows"]
    [values] = [r["values"] for r in rows if r["name"] == name]
    return [values[seed] for seed in sorted(values)]


@pytest.mark.parametrize("width, told", [(352, "0.69"), (192, "0.38")])
def test_what_a_checkpoint_loses(width, told):
    wide = record("recover_checkpoint")["bits"]["teacher"]
    taught, alone = (
        np.mean(checkpoint(width, "sensitivity", how)) for how in ("teacher", "text")
    )
    untrained = np.mean(checkpoint(width, "activation", "nothing"))
    said = page()
    assert re.search(rf"{told}: (loss )?\+{taught - wide:.3f}", said)
    assert re.search(rf"{told}: (loss )?\+{untrained - wide:.3f}", said)
    assert f"{taught - alone:.3f} at {told}" in said


def test_activation_next_to_sensitivity():
    gaps = [
        np.mean(checkpoint(width, "activation", "text"))
        - np.mean(checkpoint(width, "sensitivity", "text"))
        for width in (352, 192)
    ]
    assert f'"activation" is {gaps[0]:.3f} to {gaps[1]:.3f} worse' in page()


@pytest.mark.parametrize(
    "parameters, arm, words",
    [
        ("two thirds", "FFN and KV", "neurons and key/value heads in `fit`, one ratio"),
        ("two thirds", "search 1", "first shape of `ki.search` over all kinds"),
        ("half", "FFN and KV", "neurons and key/value heads in `fit`, one ratio"),
        ("half", "blocks", "blocks alone (2 of 6 stay: 42% of the parameters)"),
        ("two thirds", "FFN in one step", "neurons in one step instead of in `fit`"),
        ("half", "FFN in one step", "neurons in one step instead of in `fit`"),
    ],
)
def test_shapes_minus_neurons_alone(parameters, arm, words):
    mean, error = paired(shape(parameters, arm), shape(parameters, "FFN"))
    [line] = [
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {parameters} | {words}")
    ]
    mean_told, error_told = re.search(r"([+-][\d.]+) ± ([\d.]+) \|$", line).groups()
    digits = len(error_told.partition(".")[2])
    assert mean_told == f"{mean:+.3f}" and error_told == f"{error:.{digits}f}"


@pytest.mark.parametrize(
    "table, name, reference, words",
    [
        ("mini-table-7", "every 125 steps", "a mask every step",
         "125 steps cost {mean:.3f} ± {error:.3f}"),
        ("mini-table-4", "pruning without distillation", "pruning with distillation",
         "lowered the loss by {mean:.3f} ± {error:.3f}"),
        ("mini-table-5", "enlarged 5.3 times", "from scratch, the same tokens",
         "5.3× was worse by {mean:.3f} ± {error:.3f}"),
    ],
)  # fmt: skip
def test_tables_of_the_papers_kind(table, name, reference, words):
    mean, error = paired(row(table, name), row(table, reference))
    assert words.format(mean=mean, error=error) in page()


@pytest.mark.parametrize(
    "name",
    [
        "pruned from intermediate, restarted",
        "pruned from decayed, restarted",
        "pruned from decayed, resumed",
        "enlarged, decayed checkpoint",
    ],
)
def test_checkpoints_before_and_after_the_decay(name):
    assert f"{np.mean(row('tiny-table-2', name)):.3f}" in page()


def test_widths_trained_jointly():
    rows = {row["name"]: row for row in record("paper/nested/nested")["rows"]}
    gaps = []
    for width in (171, 114, 64):
        one, other = (
            rows[f"{width} neurons, {way}"]["values"]
            for way in ("joint", "one run, branches")
        )
        assert len(one) == 5
        gaps.append(-paired(*([v[s] for s in sorted(one)] for v in (one, other)))[0])
    assert f"{min(gaps):.3f} to {max(gaps):.3f} at equal" in page()


def test_the_papers_length_is_that_of_the_cells():
    records = cells("regime")
    tenth = bits(records, peak=4.87, enlarge_share=0.1)
    half = bits(records, peak=6.43, enlarge_share=None, pipeline=None)
    scratch = bits(records, peak=4.88, pipeline="scratch")
    seeds = sorted(tenth.keys() & scratch.keys() & half.keys())
    assert seeds == [0, 1, 2, 3, 4]
    page = (ROOT / "docs/when_does_it_pay.md").read_text(encoding="utf-8")
    for own in (tenth, half):
        mean, error, _ = difference(own, scratch)
        assert f"{mean:+.4f} ± {error:.4f}" in page


def test_what_rewarming_as_the_option_does_it_gains():
    """Of cells that prune with the second warm-up, for the FLOPs of one cosine."""
    records = cells("rewarm")
    wanted = {"peak": 3.0, "hidden": None, "enlarge_share": None}
    for tokens in (10, 30, 90, 270):
        rewarmed, resumed = (
            {**wanted, "budget": float(tokens), "learning_rate": rate, "wait": wait}
            for rate, wait in (("rewarmed", False), ("resumed", None))
        )
        mean, error, count = difference(
            bits(records, **rewarmed), bits(records, **resumed)
        )
        said = f"{-mean:.3f} ± {error:.3f}"
        sure = abs(mean) > scipy.stats.t.ppf(0.975, count - 1) * error
        said += {10: " at 10", 30: " at 30"}.get(tokens, "")
        assert said + ("" if sure else " (not significant)") in page()
        spent = {
            record["flops"]
            for record in records
            for fields in (rewarmed, resumed)
            if all(record["cell"].get(k) == v for k, v in fields.items())
        }
        assert count == 3 and len(spent) == 1


def test_how_many_seeds_an_effect_needs():
    """The least n at which 5 % and a power of 80 % leave an effect to be seen."""
    for spread, effect in ((0.006, 0.003), (0.006, 0.01), (0.003, 0.003)):
        seen = {
            n: (scipy.stats.t.ppf(0.975, n - 1) + scipy.stats.t.ppf(0.8, n - 1))
            * spread
            / n**0.5
            for n in range(2, 100)
        }
        least = min(n for n, smallest in seen.items() if smallest <= effect)
        assert needed_seeds(spread, effect) == least


def test_losses_by_tokens_of_recovery():
    """A figure of the block, computed another way."""
    text = PAGE.read_text(encoding="utf-8")
    bits = record("recover_tokens")["bits"]
    searched = {
        peak: bits[f"0-gradual+teacher-0.4-192-{peak}"]
        for peak in ("0.0003", "0.001", "0.003")
    }
    peak = min(searched, key=searched.get)
    seeds = [s for s in range(9) if f"{s}-gradual+teacher-0.4-192-{peak}" in bits]
    lost = [
        bits[f"{s}-gradual+teacher-0.4-192-{peak}"] - bits[f"{s}-checkpoint"]
        for s in seeds
    ]
    [line] = re.findall(
        r"40% of the neurons.*?(\| gradual, teacher \|.*?)\n", text, re.DOTALL
    )
    assert f"{np.mean(lost):+.3f}" in line


def test_what_is_left_of_a_refit():
    found = record("recover_tokens")["bits"]

    def gain(share, steps):
        """One step minus one step and refit, over the checkpoints."""

        def of(arm, seed):
            searched = {
                peak: found[f"0-{arm}-{share}-192-{peak}"]
                for peak in ("0.0003", "0.001", "0.003")
            }
            peak = min(searched, key=searched.get) if steps else "0"
            return found[f"{seed}-{arm}-{share}-{steps}-{peak}"]

        arms = ("one step", "one step+refit")
        return paired(*([of(arm, seed) for seed in range(3)] for arm in arms))

    (soft, error), (hard, spread) = gain(0.7, 0), gain(0.4, 0)
    said = page()
    assert f"by {soft:.3f} ± {error:.3f} at 0.7 of the neurons" in said
    assert f"by {hard:.3f} ± {spread:.3f} at 0.4" in said
    left = " and ".join(f"{gain(share, 192)[0]:.3f}" for share in (0.7, 0.4))
    assert f"After 197 thousand tokens of recovery, {left} of this" in said
