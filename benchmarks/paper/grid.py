"""A table, seed by seed: what is missing is carried out, then the table is written."""

import dataclasses
import pathlib

from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.plan import plan
from benchmarks.paper.progress import GridProgress
from benchmarks.paper.store import Store
from benchmarks.paper.tables import TABLES
from benchmarks.paper.write import write_table
from keras_idea.validation import check_choice, check_int


def bench_paper(
    numbers, scale, seeds, output, corpus, first_seed=0, console=None
) -> list[pathlib.Path]:
    """Carries out tables and writes them; what is finished is not run again.

    The seeds are the outer loop, so that a grid that is stopped leaves whole tables
    of fewer seeds. Tables are written after each seed.

    Args:
        numbers: sequence of int, keys of `TABLES`.
        scale: `Scale`.
        seeds: int >= 1, how many.
        output: path of the folder; one folder serves all tables and scales.
        corpus: `Corpus`.
        first_seed: int >= 0. Default 0. Two runs with other seeds may share the
            folder at the same time.
        console: `rich.console.Console` or None: the standard output.

    Returns:
        List of Path, the Markdown tables.

    Raises:
        ValueError: for a table that does not exist, no seeds, or an output that is a
            file.
    """
    for number in numbers:
        check_choice("table", number, tuple(TABLES))
    seeds = check_int("seeds", seeds, minimum=1)
    first_seed = check_int("first_seed", first_seed, minimum=0)
    corpus.check_length(scale.sequence_length)
    store = Store(output, scale, corpus)
    rows = {row.cell: row for n in reversed(numbers) for row in TABLES[n].rows}
    cells = _in_order(rows, scale)
    progress = GridProgress(len(cells) * seeds, console)
    laboratory = Laboratory(scale, corpus, store, progress.tick)
    written = []
    with kept_compilations(store.folder / "compiled"), progress.bars:
        for seed in range(first_seed, first_seed + seeds):
            for cell in cells:
                steps = sum(stage.steps for stage in plan(cell, scale))
                progress.begin(f"{rows[cell].name}, seed {seed}", steps)
                finished = store.result(cell, seed) is not None
                progress.end(carry_out(cell, laboratory, seed), finished)
            written = [write_table(number, scale, store) for number in numbers]
    return written


def _in_order(cells, scale):
    """Cells whose prefixes are shorter first: each then goes on from the last."""

    def shared(cell):
        first = plan(cell, scale)[0]
        return (first.shared, dataclasses.astuple(first.rate), first.steps)

    return sorted(cells, key=shared)
