"""The map's files: tables and a picture."""

import dataclasses
import json
import math

import numpy as np

from benchmarks.paper.map.arms import IDEA, REWARMED, Arm
from benchmarks.paper.map.draw import draw_map
from benchmarks.paper.map.findings import AGAINST, Findings, kinds
from benchmarks.paper.map.sizes import parameters
from benchmarks.paper.paper_table import estimate
from keras_idea.files import write_atomically
from keras_idea.report.table import markdown_table

#: The learning rate of a pruned run, in words.
RATES = {IDEA: "one cosine", REWARMED: "rewarmed"}
_NOTES = (
    "Bits a byte of held-out text, mean ± standard error of differences paired by "
    "seed; negative: pruning is better. Could have been seen: with 80 % power at 5 %. "
    "Tokens a parameter: of the narrow model, embeddings counted. Rewarmed: when "
    "pruning begins, the learning rate warms up again to its peak, which is that of "
    "the run under one cosine and was not searched for itself, and decays by the "
    "paper's cosine, which after its warm-up ends higher the shorter it is (15, 15, 8, "
    "2 % of the peak at 10, 30, 90, 270 tokens); the optimizer keeps its state."
)


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
    parts += [_places(places), _NOTES, _law(findings), _arms(findings)]
    parts.append(_peaks(findings))
    paths = [folder / f"map.{ending}" for ending in ("md", "json", "png")]
    write_atomically(paths[0], "\n\n".join(part for part in parts if part) + "\n")
    facts = {
        "places": [
            {**dataclasses.asdict(p), "verdict": p.verdict, "seen": p.seen}
            for p in places
        ],
        "law": law and dataclasses.asdict(law),
        "law's errors": findings.law_errors(),
        "scale": findings.grid.scale.identity(),
    }
    write_atomically(paths[1], json.dumps(facts, indent=1) + "\n")
    draw_map(paths[2], findings.grid, places, law is not None)
    return paths


def evidence(places) -> str:
    """The places as `keras_idea.runs.evidence` reads them."""
    lines = [
        json.dumps(
            {
                "budget": place.budget,
                "enlargement": round(place.enlargement, 3),
                "rewarmed": place.way == REWARMED,
                "against": place.against,
                "mean": round(place.difference.mean, 4),
                "error": round(place.difference.error, 4),
                "verdict": place.verdict,
            }
        )
        for place in places
        if place.verdict != "not run"
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _places(places):
    header = ["learning rate", "tokens a parameter", "enlarged", "against scratch on"]
    header += ["pruned - scratch", "could have been seen", "pruning", "by the law"]
    lines = [header]
    for place in places:
        gap = place.difference
        lines.append(
            [
                RATES[place.way],
                f"{place.budget}",
                f"{place.enlargement:.3g} times",
                AGAINST[place.against],
                "-" if gap is None else f"{gap.mean:+.4f}{_error(gap)}",
                "-" if place.seen is None else f"{place.seen:.4f}",
                place.verdict,
                "-" if place.predicted is None else f"{place.predicted:+.4f}",
            ]
        )
    return markdown_table(lines).rstrip()


def _error(value):
    return "" if value.error is None else f" ± {value.error:.4f}"


def _arms(findings):
    header = ["model", "tokens a parameter", "epochs", "bits/byte", "seeds"]
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
                    f"{bits.mean:.4f}{_error(bits)}",
                    f"{bits.count}",
                    f"{np.mean([r['train_bits'] for r in records]):.3f}",
                    f"{records[0]['flops'] / 1e12:.2f}",
                    f"{np.mean([r['seconds'] for r in records]):.0f}",
                ]
            )
    spent = f"{findings.core_hours:.1f} core-hours of training, the search included."
    return f"## All runs\n\n{markdown_table(lines).rstrip()}\n\n{spent}"


def _law(findings):
    """The law's constants, and how far it is off where it was not fitted."""
    law, errors = findings.law, findings.law_errors()
    if not errors:
        return ""
    return (
        f"## The law of the average parameters\n\nL = {law.E:.3f} + {law.A:.3f} (N / "
        f"{law.unit_N:,.0f})^-{law.a:.2f} + {law.B:.3f} (D / {law.unit_D:,.0f})^-"
        f"{law.b:.2f}, fitted on the runs from scratch, narrow and wide. Of the "
        f"{len(errors)} kinds of pruned runs it predicts bits a byte with a mean error "
        f"of {np.mean(errors):+.4f} and a root mean square of "
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
    return "## Learning rates, searched\n\n" + markdown_table(lines).rstrip()
