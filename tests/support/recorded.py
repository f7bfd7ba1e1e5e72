"""Records of benchmarks read, and what is said of them computed another way."""

import itertools
import json

import numpy as np
import scipy.stats

from tests.support import ROOT

#: All records lie here, those of the paper's studies below.
RESULTS = ROOT / "benchmarks" / "results"
PAPER = RESULTS / "paper"
#: Enlarged so many times, as most of the map.
WIDE_NARROW = 8 / 3


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def cells(study):
    """Records of a study: (fields at other than their default, seed, record)."""
    paths = sorted((PAPER / study / "cells").glob("seed-*.json"))
    assert paths
    return [r for path in paths for r in json.loads(path.read_text()).values()]


def bits(records, **wanted):
    """Bits by seed of the cells with such fields; None: the field is not there."""
    found = {}
    for record in records:
        fields = record["cell"]
        if record["seed"] < 100 and all(fields.get(k) == v for k, v in wanted.items()):
            assert record["seed"] not in found
            found[record["seed"]] = record["bits_per_byte"]
    return found


def difference(one, other):
    """Mean, standard error and count over the seeds of both."""
    gaps = np.array([one[s] - other[s] for s in sorted(one.keys() & other.keys())])
    return gaps.mean(), gaps.std(ddof=1) / np.sqrt(len(gaps)), len(gaps)


def p_value(mean, error, count):
    return 2 * scipy.stats.t.sf(abs(mean) / error, count - 1)


def holm(p_values):
    """How many hypotheses Holm's procedure rejects at 5 %, step by step."""
    ordered = sorted(p_values)
    steps = [p <= 0.05 / (len(ordered) - i) for i, p in enumerate(ordered)]
    return len(list(itertools.takewhile(bool, steps)))


def map_gap(records, budget, size, against, rate="resumed"):
    """Pruned minus scratch at a place of the map, from its cells alone."""
    hidden = None if size == WIDE_NARROW else size
    pruned = bits(records, hidden=hidden, budget=budget, learning_rate=rate)
    if against == "tokens":
        # A narrow model is written as enlarged twice and never pruned.
        rival = {"hidden": 2.0, "budget": budget, "target": None}
    else:
        rival = {"hidden": hidden, "budget": "flops", "flops_of": budget}
    return difference(pruned, bits(records, pipeline="scratch", **rival))


def all_gaps(records, against, rate="resumed"):
    places = itertools.product((10.0, 30.0, 90.0, 270.0, 540.0), (1.5, 8 / 3, 4.0))
    return [map_gap(records, *place, against, rate) for place in places]


def rows_of(text, header):
    """The cells of the table whose header line begins so, without bold and italics."""
    lines = text[text.index(f"| {header}") :].splitlines()
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines))[2:]
    strip = [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in table]
    assert strip
    return strip
