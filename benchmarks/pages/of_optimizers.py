"""Pruned minus scratch by optimizer, the rate of each arm searched, as a block."""

from benchmarks.intervals import Estimate
from benchmarks.pages.of_tables import FROM_DOCS
from benchmarks.pages.words import signed, verdict
from benchmarks.paper import optimizers
from benchmarks.paper.records import RESULTS, Recorded

NAMES = {"adamw": "AdamW", "muon": "Muon", "adafactor": "Adafactor", "lion": "Lion"}


def searched() -> str:
    """A sentence of all optimizers, and one of Muon."""
    facts = optimizers.STUDY.facts_of(Recorded(RESULTS / "optimizers/cells"))
    gaps = {name: Estimate(**gap) for name, gap in facts["gaps"].items()}
    pruned = "; ".join(
        f"{said} {_said(gaps[f'{name}, pruned minus {name}, scratch'])}"
        for name, said in NAMES.items()
    )
    muon = gaps["muon, scratch minus adamw, scratch"]
    link = f"[optimizers]({FROM_DOCS}optimizers/optimizers.md), n = {muon.count}"
    return (
        f"With the learning rate of every arm searched alike ({link}), pruned minus "
        f"scratch baseline at equal tokens is: {pruned}. From scratch, Muon minus "
        f"AdamW is {_said(muon)}."
    )


def _said(gap):
    return f"{signed(gap, 4)} ({verdict(gap)})"


BLOCKS = {"optimizers": searched}
