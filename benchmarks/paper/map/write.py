"""The map's files: tables and a picture."""

import dataclasses
import json
import math

import numpy as np

from benchmarks.intervals import estimate, plus_minus
from benchmarks.paper.map.arms import Arm
from benchmarks.paper.map.compared import (
    conditions,
    differences,
    error,
    rewarmed,
    table,
    tallies,
)
from benchmarks.paper.map.draw import draw_map
from benchmarks.paper.map.findings import Findings, kinds
from benchmarks.paper.map.sizes import parameters
from keras_idea.files import write_atomically


def write_map(folder, findings: Findings):
    """Writes map.md, map.json and map.png.

    Args:
        folder: path.
        findings: `Findings`.

    Returns:
        List of Path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places, law = findings.places(), findings.law
    parts = ["# When pruning while pretraining pays: the map", "![map](map.png)"]
    parts += [conditions(findings), tallies(places), differences(findings)]
    parts += [rewarmed(findings), _law(findings), _arms(findings), _peaks(findings)]
    paths = [folder / f"map.{ending}" for ending in ("md", "json", "png")]
    write_atomically(paths[0], "\n\n".join(part for part in parts if part) + "\n")
    facts = {
        "places": [
            {
                **dataclasses.asdict(p),
                "predicted": _rounded(p.predicted),
                "verdict": p.verdict,
                "seen": p.seen,
            }
            for p in places
        ],
        "law": law and {k: _rounded(v) for k, v in dataclasses.asdict(law).items()},
        "law's errors": [_rounded(error) for error in findings.law_errors()],
        "scale": findings.grid.scale.identity(),
        "text bytes": findings.text_tokens,
    }
    write_atomically(paths[1], json.dumps(facts, indent=1) + "\n")
    draw_map(paths[2], findings.grid, places, law is not None)
    return paths


def _rounded(value: float | None) -> float | None:
    """A number of the fitted law, without the digits in which machines differ."""
    return None if value is None else float(f"{value:.4g}")


def _arms(findings):
    header = ["model", "tokens per parameter", "epochs", "bits/byte", "seeds"]
    lines = [[*header, "training text", "TFLOPs", "seconds"]]
    scale = findings.grid.scale
    narrow = parameters(scale, scale.target_dim)
    for kind, enlargement in kinds(findings.grid):
        for budget in findings.grid.budgets:
            arm = Arm(kind=kind, enlargement=enlargement, budget=budget)
            records = list(findings.records(arm).values())
            bits = estimate(record["bits_per_byte"] for record in records)
            if bits is None:
                continue
            lines.append(
                [
                    f"{kind} {enlargement:.3g}",
                    f"{records[0]['tokens'] / narrow:.0f}",
                    f"{records[0]['tokens'] / findings.text_tokens:.2f}",
                    f"{bits.mean:.4f}{error(bits)}",
                    f"{bits.count}",
                    f"{np.mean([r['train_bits'] for r in records]):.3f}",
                    f"{records[0]['flops'] / 1e12:.2f}",
                    f"{np.mean([r['seconds'] for r in records]):.0f}",
                ]
            )
    spent = f"{findings.core_hours:.1f} core-hours of training, the search included."
    spent = _seeds_of_arms(findings) + spent
    return f"## All runs\n\n{table(lines)}\n\n{spent}"


def _seeds_of_arms(findings):
    """What "±" is where it is of other numbers of seeds than in the comparisons."""
    arms = [*findings.grid.compared_arms(), *findings.grid.wide_arms()]
    counts = {len(findings.records(arm)) for arm in arms}
    return plus_minus(counts, "seeds") + " " if len(counts) > 1 else ""


def _law(findings):
    """The law's constants, and how far it is off where it was not fitted."""
    law, errors = findings.law, findings.law_errors()
    if not errors:
        return ""
    return (
        f"## The law of the average parameters\n\nL = {law.E:.3f} + {law.A:.3f} (N / "
        f"{law.unit_N:,.0f})^-{law.a:.2f} + {law.B:.3f} (D / {law.unit_D:,.0f})^-"
        f"{law.b:.2f}, fitted on the runs from scratch, narrow and wide. Of the "
        f"{len(errors)} kinds of pruned runs it predicts bits per byte with a mean "
        f"error of {np.mean(errors):+.4f} and a root mean square of "
        f"{math.sqrt(np.mean(np.square(errors))):.4f}."
    )


def _peaks(findings):
    grid, rates = findings.grid, findings.rates
    peaks = [f"{p * grid.scale.peak_learning_rate:.3g}" for p in grid.peaks]
    lines = [["bits/byte at a peak learning rate of", *peaks, "best peak"]]
    for arm, bits in rates.bits.items():
        found = ["diverged" if b is None else f"{b:.4f}" for b in bits]
        best = rates.best[arm] * grid.scale.peak_learning_rate
        lines.append([arm.name, *found, f"{best:.3g}"])
    return "## Learning rates, searched\n\n" + table(lines)
