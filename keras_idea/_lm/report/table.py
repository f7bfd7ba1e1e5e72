"""The table at the end of a run: as text and as JSON."""

import dataclasses
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class ResultRow:
    """Holds the results of one model. None means not measured."""

    name: str
    parameters: int | None = None
    bits_per_byte: float | None = None  # on the held-out text
    step_ms: float | None = None  # of the fastest epoch
    perplexity_per_token: float | None = None  # on the held-out text


# Header, attribute, format.
COLUMNS = (
    ("model", "name", "{}"),
    ("parameters", "parameters", "{:,}"),
    ("bits/byte", "bits_per_byte", "{:.3f}"),
    ("perplexity", "perplexity_per_token", "{:.2f}"),
    ("ms/step", "step_ms", "{:.1f}"),
)
LEGEND = (
    "Bits per byte and perplexity per token of held-out text (lower is better), in "
    "windows\nof one sequence without overlap; milliseconds per training step of the "
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
    """Lines of equal width, of the header and of each row; numbers to the right."""
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
