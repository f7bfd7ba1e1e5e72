"""Widths trained jointly: `python -m benchmarks.paper.nested --seeds 5`.

MatFormer's way (arXiv 2310.07707) next to one run with branches: the FFNs of the widest
member hold the others as their first neurons, and each step trains one width, in turn.
"joint" begins so. "joint, sorted" trains the widest alone for a quarter of the FLOPs,
then sorts its neurons by importance. Both at the FLOPs of the one run for all its
widths, under the better of two curves and three peaks. Writes nested.md, nested.json.
"""

import dataclasses
import itertools
import json
import math
import sys

from benchmarks.paper.carry_out import Evaluator
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.family import SEARCH_SEED, key, members, parts
from benchmarks.paper.family_plan import MAP_FAMILY, Family
from benchmarks.paper.nested_training import train_jointly
from benchmarks.paper.paper_table import SeededRow, to_json, to_markdown
from benchmarks.paper.store import versions
from benchmarks.paper.study import TEXT_NOTE, seeds_of, study_parser, text_of
from keras_idea.files import write_atomically

JOINT, SORTED, BRANCHES = "joint", "joint, sorted", "one run, branches"
#: The peak that family.md chose for the one run, whose curve is fixed.
BRANCHES_PEAK = 2.0


def ways(family: Family):
    """All of (what is trained, peak, curve) that are searched."""
    for name in (JOINT, SORTED):
        for peak, shape in itertools.product(family.peaks, family.shapes):
            yield name, peak, shape


def chosen(results, family: Family) -> dict[str, tuple[float, str]]:
    """The peak and curve of each way, the best for the mean of its members."""
    best = {BRANCHES: (BRANCHES_PEAK, family.shapes[0])}
    for name in (JOINT, SORTED):
        means = {}
        for way, peak, shape in ways(family):
            found = results.get(f"{way}: {key(SEARCH_SEED, peak, shape)}")
            if way == name and found is not None:
                bits = [record["bits"] for record in found["members"].values()]
                mean = sum(bits) / len(bits)
                means[peak, shape] = math.inf if math.isnan(mean) else mean
        best[name] = min(means, key=means.__getitem__)
    return best


def carry_out(name, family: Family, corpus, seed, judge) -> dict[str, dict]:
    """Bits per byte of every member that one way of training makes."""
    if name != BRANCHES:
        return train_jointly(name, family, corpus, seed, judge, name == SORTED)
    return members(BRANCHES, family, corpus, seed, judge)


def main(arguments=None, family: Family = MAP_FAMILY) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    given = study_parser(__doc__.splitlines()[0], "nested").parse_args(arguments)
    corpus = text_of(given)
    judge = Evaluator(family.scale, corpus).bits_per_byte
    cells = given.output / "cells.json"
    given.output.mkdir(parents=True, exist_ok=True)
    results = json.loads(cells.read_text()) if cells.exists() else {}

    def complete(name, seed, peak, shape):
        at = f"{name}: {key(seed, peak, shape)}"
        if at not in results:
            one = dataclasses.replace(family, peak=peak, shape=shape)
            made = carry_out(name, one, corpus, seed, judge)
            results[at] = {"members": made, "versions": versions()}
            write_atomically(cells, json.dumps(results, indent=1) + "\n")
            print(at, [round(m["bits"], 4) for m in made.values()], flush=True)

    with kept_compilations(given.runs / "compiled"):
        for name, peak, shape in ways(family):
            complete(name, SEARCH_SEED, peak, shape)
        for seed in seeds_of(given):
            for name, way in chosen(results, family).items():
                complete(name, seed, *way)
            write(given.output, family, results)
    return 0


def rows(family: Family, results) -> list[SeededRow]:
    """The table's rows; each of a width against that width of the one run."""
    best, made = chosen(results, family), []
    for width in family.widths:
        for name in (BRANCHES, JOINT, SORTED):
            row = f"{width} neurons, {name}"
            records = {}
            for at, found in results.items():
                way, _, rest = at.partition(": ")
                seed, how = parts(rest)
                if (way, how) == (name, best[name]) and seed < SEARCH_SEED:
                    records[seed] = found["members"][row]
            one = next(iter(records.values()))
            made.append(
                SeededRow(
                    row,
                    {seed: record["bits"] for seed, record in records.items()},
                    None if name == BRANCHES else f"{width} neurons, {BRANCHES}",
                    width,
                    one["tokens"],
                    one["flops"],
                )
            )
    return made


def write(folder, family, results) -> None:
    """Writes both files."""
    table, best = rows(family, results), chosen(results, family)
    widths = ", ".join(map(str, family.widths))
    total = family.flops(family.together(family.steps))
    peak = family.scale.peak_learning_rate
    rates = "; ".join(f"{n}: {p * peak:.2g}, {shape}" for n, (p, shape) in best.items())
    notes = [
        TEXT_NOTE,
        f"Every way has {total / 1e12:.2f} TFLOPs for all {len(family.widths)} widths "
        "together. The FLOPs and tokens of a branch are those of the way to it; those "
        "of a joint training are of all widths.",
        f"Learning rates: seed {SEARCH_SEED} searched {len(family.peaks)} peaks and "
        f"{len(family.shapes)} curves for both joint ways; the peak of the one run is "
        f"that of family.md. Chosen: {rates}.",
    ]
    title = f"Trained jointly, or one run with branches: {widths} neurons"
    write_atomically(folder / "nested.md", to_markdown(title, table, notes))
    write_atomically(folder / "nested.json", to_json(title, table, {"rates": best}))


if __name__ == "__main__":
    sys.exit(main())
