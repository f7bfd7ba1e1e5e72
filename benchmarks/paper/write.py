"""From the finished cells of a table to its files."""

import pathlib
import statistics

from benchmarks.paper.cell import SCRATCH
from benchmarks.paper.figures import FIGURES, Drawing
from benchmarks.paper.paper_figures import draw_differences
from benchmarks.paper.paper_table import SeededRow, to_json, to_markdown
from benchmarks.paper.tables import TABLES
from keras_idea.files import write_atomically


def write_table(number, scale, store) -> pathlib.Path:
    """Writes a table, as Markdown and as JSON, and its figures; its Markdown's path.

    Rows of which no seed is finished are left out of the figures and empty in the
    table.
    """
    table = TABLES[number]
    results = {row.name: store.results(row.cell) for row in table.rows}
    rows = [seeded_row(row, results[row.name]) for row in table.rows]
    title = f"Table {number}: {table.title} ({scale.name})"
    stem = f"{scale.name}-table-{number}"
    notes = [*_compaction_notes(table, results), *_fact_notes(results)]
    pictures = _draw(number, stem, title, store.tables, rows, results)
    notes += [f"![{path.stem}]({path.name})" for path in pictures]
    path = store.tables / f"{stem}.md"
    write_atomically(path, page(number, title, rows, notes))
    facts = {"paper": table.paper, "scale": scale.identity(), "notes": notes}
    write_atomically(path.with_suffix(".json"), to_json(title, rows, facts))
    return path


def page(number, title, rows, notes) -> str:
    """A table's Markdown: its rows, what the paper says, cautions, what was noted.

    Args:
        number: int, a key of `TABLES`.
        title: str.
        rows: list of `SeededRow`.
        notes: list of str, of the cells that it was made of.
    """
    table = TABLES[number]
    said = [f"The paper: {table.paper}", *table.cautions]
    return to_markdown(title, rows, [*said, *notes])


def seeded_row(row, results) -> SeededRow:
    """A row of the report, from the results of its cell by seed."""
    one = next(iter(results.values()), None)
    return SeededRow(
        name=row.name,
        values={seed: result["bits_per_byte"] for seed, result in results.items()},
        reference=row.reference,
        width=one and one["width"],
        tokens=one and one["tokens"],
        flops=one and one["flops"],
        seconds=one and statistics.fmean(r["seconds"] for r in results.values()),
    )


def _compaction_notes(table, results):
    """What compaction saved, of the rows that are pruned."""
    lines = []
    for row in table.rows:
        one = next(iter(results[row.name].values()), None)
        if one is None or row.cell.pipeline == SCRATCH:
            continue
        masked, spent, cubic = one["flops_masked"], one["flops"], one["flops_cubic"]
        lines.append(
            f"- {row.name}: {1 - spent / masked:.1%} fewer FLOPs than masked to the end"
            + (
                f" (as narrow as its mask at every step: {1 - cubic / masked:.1%})"
                if cubic < spent
                else ""
            )  # fmt: skip
        )
    return ["FLOPs that narrowing inside `fit` saves:\n\n" + "\n".join(lines)] * bool(
        lines
    )


def _fact_notes(results):
    for by_seed in results.values():
        for result in by_seed.values():
            versions = ", ".join(f"{k} {v}" for k, v in result["versions"].items())
            return [f"Text: {result['data']}. Computed with {versions}."]
    return []


def _draw(number, stem, title, folder, rows, results):
    folder.mkdir(parents=True, exist_ok=True)
    drawing = Drawing({row.name: row for row in rows}, results)
    drawn = []
    for name, draw in FIGURES.get(number, {}).items():
        path = folder / f"{stem}-{name}.png"
        if draw(path, drawing):
            drawn.append(path)
    path = folder / f"{stem}-differences.png"
    if draw_differences(path, rows, title):
        drawn.append(path)
    return drawn
