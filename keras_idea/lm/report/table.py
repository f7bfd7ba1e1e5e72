"""The table at the end of a run: for the terminal, as Markdown and as JSON."""

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_idea.validation import require

if TYPE_CHECKING:
    import rich.console


@dataclasses.dataclass(frozen=True)
class ResultRow:
    """Holds the results of one model. None means not measured.

    Args:
        name: str. The name of the model.
        parameters: int or None. Trained parameters.
        bits_per_byte: float or None. Cross-entropy on the held-out text.
        step_ms: float or None. Milliseconds per training step, of the fastest epoch.
        perplexity_per_token: float or None. Perplexity on the held-out text, per token
            of the model's tokenizer.
    """

    name: str
    parameters: int | None = None
    bits_per_byte: float | None = None
    step_ms: float | None = None
    perplexity_per_token: float | None = None


# Header, attribute, format. Short, so that the table fits 80 columns.
COLUMNS = (
    ("model", "name", "{}"),
    ("parameters", "parameters", "{:,}"),
    ("bits/byte", "bits_per_byte", "{:.3f}"),
    ("perplexity per token", "perplexity_per_token", "{:.2f}"),
    ("ms/step", "step_ms", "{:.1f}"),
)
LEGEND = (
    "Bits per byte and perplexity per token of held-out text (lower is better), in "
    "windows of one sequence without overlap; milliseconds per training step of the "
    "fastest epoch."
)


def cells(row: ResultRow) -> list[str]:
    """The texts of one row, in the order of `COLUMNS`; "-": it was not measured."""
    values = [(getattr(row, name), form) for _, name, form in COLUMNS]
    return ["-" if value is None else form.format(value) for value, form in values]


def to_markdown(rows: Sequence[ResultRow]) -> str:
    """The table as Markdown, and the legend."""
    lines = [[header for header, _, _ in COLUMNS], *map(cells, rows)]
    return f"{markdown_table(lines)}\n{LEGEND}\n"


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of equal width, of the header and of each row; numbers to the right.

    The first column is text.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [
        [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        for line in lines
    ]
    padded.insert(1, rule)
    return "".join(f"| {' | '.join(line)} |\n" for line in padded)


def to_json(rows: Sequence[ResultRow], facts: dict | None = None) -> str:
    """The table as JSON: `rows`, and what is worth knowing about the run."""
    records = {"rows": [dataclasses.asdict(row) for row in rows]}
    return json.dumps({**records, **(facts or {})}, indent=2) + "\n"


def print_table(
    rows: Sequence[ResultRow], console: "rich.console.Console | None" = None
) -> None:
    """Prints the table to the terminal, or another console."""
    console = console or standard_output()
    table = require("rich.table", "A table", "cli").Table(
        box=require("rich.box", "A table", "cli").SIMPLE_HEAD,
        pad_edge=False,
        caption=LEGEND,
        caption_justify="left",
    )
    for index, (header, _, _) in enumerate(COLUMNS):
        # In two lines, so that the names of the models need but one.
        table.add_column(
            header.replace(" per ", "\nper "), justify="right" if index else "left"
        )
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)


def standard_output() -> "rich.console.Console":
    """The console of `rich` that writes to the standard output."""
    return require("rich.console", "A table in the terminal", "cli").Console()
