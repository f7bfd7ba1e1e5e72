"""A table over seeds: means, standard errors, and differences seed by seed."""

import dataclasses
import json
from collections.abc import Iterable

from benchmarks.intervals import Estimate, estimate, plus_minus
from keras_idea.lm.report.table import markdown_table


@dataclasses.dataclass(frozen=True)
class SeededRow:
    """What is known of one way to come by a model, over seeds.

    Args:
        name: str, unique in the table.
        values: dict of seed to bits per byte; None or NaN: training diverged.
        reference: str or None, the row it is compared with.
        width: int, neurons of an FFN at the end.
        tokens: int, bytes trained on.
        flops: int, operations that training took.
        seconds: float, training, on average.
    """

    name: str
    values: dict
    reference: str | None = None
    width: int | None = None
    tokens: int | None = None
    flops: int | None = None
    seconds: float | None = None


def paired_difference(row: SeededRow, reference: SeededRow) -> Estimate | None:
    """The mean of row - reference, over the seeds that both have; None: there is none.

    What the seeds share (the text, the order of batches, the initial weights)
    cancels, so the error is smaller than that of either mean.
    """
    both = [seed for seed in row.values if seed in reference.values]
    pairs = [(row.values[seed], reference.values[seed]) for seed in both]
    return estimate(a - b for a, b in pairs if a is not None and b is not None)


# Header, function of (row, mean, difference) to a text.
_COLUMNS = (
    ("model", lambda row, mean, gap: row.name),
    ("bits/byte", lambda row, mean, gap: _estimate(row, mean)),
    ("seeds", lambda row, mean, gap: str(len(row.values))),
    (
        "against its reference",
        lambda row, mean, gap: _with_error(gap, "+"),
    ),
    ("width", lambda row, mean, gap: _number(row.width, "{:,}")),
    ("tokens (M)", lambda row, mean, gap: _number(row.tokens, "{:.2f}", 1e6)),
    ("TFLOPs", lambda row, mean, gap: _number(row.flops, "{:,.1f}", 1e12)),
    ("seconds", lambda row, mean, gap: _number(row.seconds, "{:,.0f}")),
)
LEGEND = (
    "Bits per byte of held-out text: lower is better. A token is a byte. The "
    "difference is paired by seed: negative is better. {plus_minus} Tokens and FLOPs "
    "are those of the whole pipeline, the wide stage included. {one_cpu}"
)
#: As map/moved.json and nested/cores.json have it. Cells name their CPU since then.
ONE_CPU = (
    "The same run with the same seed moves by up to 0.006 bits from one machine to "
    "another, and by up to 0.011 bits with another number of cores: compare runs on "
    "one type of CPU and as many cores only."
)


def to_markdown(title: str, rows: list[SeededRow], notes: Iterable[str] = ()) -> str:
    """The table as Markdown; the notes are paragraphs below it."""
    lines = [[header for header, _ in _COLUMNS]]
    for row, mean, gap in _estimates(rows):
        lines.append([text(row, mean, gap) for _, text in _COLUMNS])
    table = markdown_table(lines)
    counts = [len(row.values) for row in rows]
    legend = LEGEND.format(plus_minus=plus_minus(counts), one_cpu=ONE_CPU)
    parts = [f"# {title}", table.rstrip(), legend, *_references(rows), *notes]
    return "\n\n".join(parts) + "\n"


def to_json(title: str, rows: list[SeededRow], facts: dict | None = None) -> str:
    """The table as JSON; the facts are further members of the object."""
    records = [
        {
            **dataclasses.asdict(row),
            "mean": mean and dataclasses.asdict(mean),
            "difference": gap and dataclasses.asdict(gap),
        }
        for row, mean, gap in _estimates(rows)
    ]
    table = {"title": title, "rows": records, **(facts or {})}
    return json.dumps(table, indent=2) + "\n"


def _estimates(rows):
    by_name = {row.name: row for row in rows}
    for row in rows:
        reference = by_name.get(row.reference)
        gap = None if reference is None else paired_difference(row, reference)
        yield row, estimate(row.values.values()), gap


def _references(rows):
    """Which rows are compared with which, unless it is one for all."""
    names = dict.fromkeys(row.reference for row in rows if row.reference)
    if len(names) == 1:
        return [f"Reference: {next(iter(names))}."]
    pairs = [f"{row.name}: {row.reference}" for row in rows if row.reference]
    return [f"References: {'; '.join(pairs)}."] if pairs else []


def _estimate(row, mean):
    if mean is None:
        return "diverged" if row.values else "-"
    diverged = len(row.values) - mean.count
    return _with_error(mean, "") + (f" ({diverged} diverged)" if diverged else "")


def _with_error(value, sign):
    if value is None:
        return "-"
    error = "" if value.error is None else f" ± {value.error:.4f}"
    return f"{value.mean:{sign}.4f}{error}"


def _number(value, form, unit=None):
    if value is None:
        return "-"
    return form.format(value if unit is None else value / unit)
