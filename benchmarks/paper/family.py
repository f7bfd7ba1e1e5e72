"""One run, a family: `python -m benchmarks.paper.family --seeds 5`.

Masks never revive, so every width passed on the way down is a subnetwork of the one
before. One run is enlarged, then pruned to one width after another at a constant
learning rate; from each width a branch recovers while its rate decays. Beside it a run
for each width alone, all together at the same FLOPs, and narrow models from scratch,
each under the better of one cosine and a constant rate that decays. Writes family.md
and family.json.
"""

import dataclasses
import itertools
import json
import math
import sys

from benchmarks.paper.build import new_model
from benchmarks.paper.carry_out import Evaluator
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.family_plan import MAP_FAMILY, Family
from benchmarks.paper.paper_table import SeededRow, to_json, to_markdown
from benchmarks.paper.run_stage import run_stage
from benchmarks.paper.study import TEXT_NOTE, seeds_of, study_parser, text_of
from keras_idea.files import write_atomically

#: Its runs choose the peaks of the learning rates, and are not in the table.
SEARCH_SEED = 100
ONE_RUN = "one run"
_PARTS = {2: "half", 3: "third", 4: "quarter"}


def carry_out(family: Family, corpus, seed: int, judge) -> dict[str, dict]:
    """Bits a byte of every member, made together, apart and from scratch.

    The one run has a constant rate; it is made with the first of the rivals' shapes.

    Args:
        family: `Family`.
        corpus: `Corpus`.
        seed: int.
        judge: function of a `Checkpoint` that returns bits per byte.

    Returns:
        dict of a row's name to a dict: bits, width, tokens and flops.
    """
    scale, found = family.scale, {}
    if family.shape == family.shapes[0]:
        found |= members(ONE_RUN, family, corpus, seed, judge)
    for stages in family.apart(family.steps.times(family.share())).values():
        end = None
        for stage in stages:
            end = run_stage(stage, scale, corpus, seed, end)
        found |= _record("a run each", family, end, stages, judge)
        alone = family.scratch(end.width, family.flops(stages))
        narrow = run_stage(alone, scale, corpus, seed)
        found |= _record("from scratch", family, narrow, [alone], judge)
    return found


def members(name: str, family: Family, corpus, seed: int, judge) -> dict[str, dict]:
    """The part of `carry_out` that is made in one run, each width under a name."""
    scale, steps, found, end = family.scale, family.steps, {}, None
    trunk = family.trunk(family.widths, steps)
    for i, stage in enumerate(trunk):
        end = run_stage(stage, scale, corpus, seed, end)
        if i:
            branch = family.branch(stage, steps)
            member = run_stage(branch, scale, corpus, seed, end)
            way = [*trunk[: i + 1], branch]
            found |= _record(name, family, member, way, judge)
    return found


def _record(name, family, end, stages, judge):
    steps = sum(stage.steps for stage in stages)
    record = {
        "bits": judge(end),
        "width": end.width,
        "tokens": steps * family.scale.tokens_a_step,
        "flops": family.flops(stages),
    }
    return {f"{end.width} neurons, {name}": record}


def chosen(results: dict[str, dict]) -> dict[str, tuple[float, str]]:
    """Each row's best peak and shape, by the seeds that were kept for the search.

    The rows of the one run have one: the best for the mean of its members.

    Args:
        results: dict of `key` to what `carry_out` returned.
    """
    searched: dict[str, dict[tuple[float, str], list[float]]] = {}
    names = set()
    for at, found in results.items():
        seed, way = parts(at)
        if seed >= SEARCH_SEED:
            names |= found.keys()
            for name, record in found.items():
                # NaN, of a training that diverged, is no number to be the least.
                bits = math.inf if math.isnan(record["bits"]) else record["bits"]
                own = searched.setdefault(_run_of(name), {}).setdefault(way, [])
                own.append(bits)
    best = {
        run: min(found, key=lambda way: sum(found[way]) / len(found[way]))
        for run, found in searched.items()
    }
    return {name: best[_run_of(name)] for name in sorted(names)}


def _run_of(name):
    """What the row's model was made by: its own run, or the one run."""
    return ONE_RUN if name.endswith(ONE_RUN) else name


def key(seed: int, peak: float, shape: str) -> str:
    """What a seed's results are kept under."""
    return f"{seed}, peak {peak:g}, {shape}"


def parts(name: str) -> tuple[int, tuple[float, str]]:
    """The seed, and (peak, curve), of a `key`."""
    seed, peak, shape = name.split(", ")
    return int(seed), (float(peak.removeprefix("peak ")), shape)


def rows(family: Family, results: dict[str, dict]) -> list[SeededRow]:
    """The table's rows of all seeds; each of a width against a run each.

    Every row is of its own best peak and shape.
    """
    best, made = chosen(results), []
    for width in family.widths:
        for name in ("a run each", ONE_RUN, "from scratch"):
            row = f"{width} neurons, {name}"
            records = {
                seed: found[row]
                for (seed, way), found in (
                    (parts(at), found) for at, found in results.items()
                )
                if way == best[row] and seed < SEARCH_SEED
            }
            one = next(iter(records.values()))
            made.append(
                SeededRow(
                    row,
                    {seed: record["bits"] for seed, record in records.items()},
                    None if name == "a run each" else f"{width} neurons, a run each",
                    one["width"],
                    one["tokens"],
                    one["flops"],
                )
            )
    return made


def main(arguments=None, family: Family = MAP_FAMILY) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    parser = study_parser(__doc__.splitlines()[0], "family")
    given = parser.parse_args(arguments)
    corpus = text_of(given)
    judge = Evaluator(family.scale, corpus).bits_per_byte
    cells = given.output / "cells.json"
    given.output.mkdir(parents=True, exist_ok=True)
    results = json.loads(cells.read_text()) if cells.exists() else {}

    def complete(seed, ways):
        for peak, shape in ways:
            at = key(seed, peak, shape)
            if at not in results:
                one = dataclasses.replace(family, peak=peak, shape=shape)
                results[at] = carry_out(one, corpus, seed, judge)
                write_atomically(cells, json.dumps(results, indent=1) + "\n")
                print(at, flush=True)

    with kept_compilations(given.runs / "compiled"):
        complete(SEARCH_SEED, itertools.product(family.peaks, family.shapes))
        for seed in seeds_of(given):
            complete(seed, sorted(set(chosen(results).values())))
            write(given.output, family, results)
    return 0


def write(folder, family, results) -> None:
    """Writes both files."""
    table, best = rows(family, results), chosen(results)
    widths = ", ".join(map(str, family.widths))
    title = f"One run, a family: {family.enlarged} neurons to {widths}"
    narrow = new_model(family.scale, family.widths[-1]).count_params()
    total = family.flops(family.together(family.steps))
    rates = "; ".join(
        f"{name}: {peak * family.scale.peak_learning_rate:.2g}, {shape}"
        for name, (peak, shape) in best.items()
    )
    notes = [
        f"{TEXT_NOTE} The narrowest model has {narrow:,} parameters.",
        f"The one run has {family.steps.enlarge:,} wide steps, and per width "
        f"{family.steps.prune:,} of pruning and {family.steps.recover:,} of recovery; "
        f"each run alone has {family.share():.3f} of them. Either way that is "
        f"{total / 1e12:.2f} TFLOPs for all {len(family.widths)} widths together: a "
        f"rival gets about a {_PARTS[len(family.widths)]} of them. The FLOPs of a "
        "member of the one run are those of the way to it. From scratch: at the FLOPs "
        "of the run each. The learning rate of the one run is constant and decays in "
        "each recovery.",
        f"Learning rates: one seed that is not in the table searched "
        f"{len(family.peaks)} peaks, and for the rivals {len(family.shapes)} curves "
        "(the one run's curve is fixed). A best peak at the end of the searched range "
        f"may not be the best. Chosen: {rates}.",
    ]
    write_atomically(folder / "family.md", to_markdown(title, table, notes))
    facts = {
        "steps": dataclasses.asdict(family.steps),
        "share": family.share(),
        "rates": best,
    }
    write_atomically(folder / "family.json", to_json(title, table, facts))


if __name__ == "__main__":
    sys.exit(main())
