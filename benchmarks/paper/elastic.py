"""Several widths in one run: `python -m benchmarks.paper.elastic --seeds 5`.

`ki.ElasticCallback` at the scale, the widths and the FLOPs of nested.md: widths in
turn, by probabilities, as a sandwich, with the full width as teacher, and sorted in
mid-run.
Against them one run with branches, a model from scratch for each width that has an
equal share of the FLOPs, and one that has them all. Resumable: each finished cell is
kept. Writes elastic.md and elastic.json.
"""

import dataclasses
import itertools
import json
import math
import os
import sys

from benchmarks.paper import nested
from benchmarks.paper.carry_out import Evaluator
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.elastic_table import Results, write
from benchmarks.paper.elastic_training import timed
from benchmarks.paper.elastic_ways import (
    BRANCHES,
    SORTED,
    TURN,
    Way,
    all_name,
    each_name,
    ways,
)
from benchmarks.paper.family import SEARCH_SEED, key, parts
from benchmarks.paper.family_plan import MAP_FAMILY, Family
from benchmarks.paper.records import RESULTS
from benchmarks.paper.store import versions
from benchmarks.paper.study import seeds_of, study_parser, text_of
from keras_idea.files import write_atomically

#: Of family.md, in hindsight the best of its six for each width: good to the rivals.
EACH_RATE = 2.0, "stable"
#: The map searched the peaks of scratch models from 0.3 to 4 TFLOPs: 2.7 to 3.4.
ALL_RATE = 3.0, "annealed"


def searched_before(family: Family) -> dict[str, tuple[float, str]]:
    """The peaks and curves that earlier studies found for the same ways."""
    path = RESULTS / "nested/cells.json"
    joint = nested.chosen(json.loads(path.read_text(encoding="utf-8")), family)
    same = {
        TURN: joint[nested.JOINT],
        SORTED: joint[nested.SORTED],
        BRANCHES: joint[nested.BRANCHES],
    }
    for width in family.widths:
        same |= {each_name(width): EACH_RATE, all_name(width): ALL_RATE}
    return same


def chosen(results: Results, family: Family) -> dict[str, tuple[float, str]]:
    """The peak and curve of each way: the best for the mean of its members.

    Of a way that was not searched here, those of `searched_before`; of one that was
    searched nowhere, none.
    """
    means: dict[str, dict[tuple[float, str], float]] = {}
    for at, found in results.items():
        way, _, rest = at.partition(": ")
        seed, how = parts(rest)
        if seed == SEARCH_SEED:
            bits = [record["bits"] for record in found["members"].values()]
            mean = sum(bits) / len(bits)
            # NaN, of a training that diverged, is no number to be the least.
            means.setdefault(way, {})[how] = math.inf if math.isnan(mean) else mean
    best = dict(searched_before(family)) if family == MAP_FAMILY else {}
    return best | {way: min(of, key=of.__getitem__) for way, of in means.items()}


def carry_out(given, family: Family, way: Way, seed, peak, shape, judge, results):
    """Carries out what is missing of one cell, and keeps it."""
    at = f"{way.name}: {key(seed, peak, shape)}"
    if at in results:
        return
    one = dataclasses.replace(family, peak=peak, shape=shape)
    made = timed(way, one, given.corpus, seed, judge)
    threads = int(os.environ.get("NPROC", len(os.sched_getaffinity(0))))
    results[at] = {**made, "versions": versions(), "threads": threads}
    write_atomically(given.output / "cells.json", json.dumps(results, indent=1) + "\n")
    bits = [round(record["bits"], 4) for record in made["members"].values()]
    print(at, bits, made["seconds"], made["cpu_seconds"], flush=True)


def main(arguments=None, family: Family = MAP_FAMILY) -> int:
    """Searches the rates that are missing, then carries out the seeds."""
    every = ways(family)
    parser = study_parser(__doc__.splitlines()[0], "elastic")
    parser.add_argument("--ways", nargs="+", choices=every, default=list(every))
    parser.add_argument("--peaks", nargs="+", type=float, default=family.peaks)
    parser.add_argument("--shapes", nargs="+", default=family.shapes)
    parser.add_argument(
        "--search",
        action="store_true",
        help="search ways anew whose rates earlier studies have searched",
    )
    given = parser.parse_args(arguments)
    given.corpus = text_of(given)
    judge = Evaluator(family.scale, given.corpus).bits_per_byte
    given.output.mkdir(parents=True, exist_ok=True)
    cells = given.output / "cells.json"
    results = json.loads(cells.read_text()) if cells.exists() else {}
    known = searched_before(family) if family == MAP_FAMILY else {}
    with kept_compilations(given.runs / "compiled"):
        for name in given.ways:
            grid = itertools.product(given.peaks, given.shapes)
            for way in [] if name in known and not given.search else grid:
                cell = every[name], SEARCH_SEED, *way
                carry_out(given, family, *cell, judge, results)
        for seed in seeds_of(given):
            for name in given.ways:
                best = chosen(results, family)
                cell = every[name], seed, *best[name]
                carry_out(given, family, *cell, judge, results)
                write(given.output, family, results, best)
    return 0


if __name__ == "__main__":
    sys.exit(main())
