"""`keras-idea report`: finished runs as one HTML page that needs no other file."""

import base64
import dataclasses
import html
import io
import json
import os
import pathlib
import tomllib
from collections.abc import Sequence

from keras_idea.errors import ReportRefused, RunRecordError
from keras_idea.files import write_atomically
from keras_idea.lm.report.curves import Curve, read_metrics
from keras_idea.lm.report.picture import draw_side_by_side
from keras_idea.lm.report.table import COLUMNS, LEGEND, ResultRow, cells, print_table

#: The first line of every report, by which its file is known as one.
MARK = "<!DOCTYPE html><!-- keras-idea report -->"
# Nothing may be loaded: plots are in the page itself.
_HEAD = """<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;
 style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>
body { font: 15px/1.45 system-ui, sans-serif; color: #1f2933; margin: 0 auto;
       max-width: 1240px; padding: 24px; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid #e4e7eb; text-align: right; }
th:first-child, td:first-child, .text td { text-align: left; }
img { max-width: 100%; height: auto; }
pre { background: #f5f7fa; padding: 12px; white-space: pre-wrap; }
</style>"""


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A finished run, read from its folder."""

    name: str
    settings: dict[str, str]  # "table.key" to value
    rows: list[ResultRow]
    facts: dict[str, str]
    curves: list[Curve]  # the pruned model first
    plot: bytes
    sample: str


def read_run(path: str | os.PathLike) -> RunRecord:
    """Reads the folder of a finished run.

    Raises:
        RunRecordError: If it is none, or a file in it is damaged.
    """
    path = pathlib.Path(path)
    try:
        config = tomllib.loads((path / "config.toml").read_text("utf-8"))
        facts = json.loads((path / "table.json").read_text("utf-8"))
        return RunRecord(
            os.fspath(path),
            {f"{t}.{k}": str(v) for t, keys in config.items() for k, v in keys.items()},
            [ResultRow(**row) for row in facts.pop("rows")],
            {name: str(value) for name, value in facts.items()},
            read_metrics(path / "metrics.csv"),
            (path / "run.png").read_bytes(),
            (path / "sample.txt").read_text("utf-8", errors="replace"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunRecordError(
            f"{str(path)!r} is no finished run: {error}. Give a folder that "
            "`keras-idea train` has finished."
        ) from None


def report(
    paths: Sequence[str | os.PathLike], output: str | os.PathLike = "report.html"
) -> pathlib.Path:
    """Writes a page about finished runs, and prints their tables.

    Args:
        paths: list of path. Run folders.
        output: path. The page. An earlier report is replaced, another file never.

    Raises:
        ReportRefused: If another file is there.
        RunRecordError: As `read_run`.

    Example:
    >>> path = report(["finished"], "runs.html")
    <BLANKLINE>
    finished...
    """
    output = pathlib.Path(output)
    if output.exists() and not (
        output.is_file() and output.read_bytes().startswith(MARK.encode())
    ):
        raise ReportRefused(
            f"{str(output)!r} is no report, so it is not replaced. Give another name "
            "(--output)."
        )
    records = [read_run(path) for path in paths]
    write_atomically(output, report_page(records).encode(errors="replace"))
    for record in records:
        print(f"\n{record.name}", flush=True)
        print_table(record.rows)
    return output


def report_page(records: Sequence[RunRecord]) -> str:
    """The HTML of a report."""
    title = html.escape("keras-idea: " + ", ".join(record.name for record in records))
    parts = [f"{MARK}\n{_HEAD}<title>{title}</title></head><body><h1>{title}</h1>"]
    rows = [[record.name, *cells(row)] for record in records for row in record.rows]
    parts += [_table([["run", *(header for header, _, _ in COLUMNS)], *rows])]
    parts += [f"<p>{html.escape(LEGEND)}</p>"]
    if len(records) > 1:
        plot = io.BytesIO()
        draw_side_by_side(plot, [(record.name, record.curves[0]) for record in records])
        parts += ["<h2>The pruned models</h2>", _image(plot.getvalue(), "all runs")]
    for record in records:
        facts = "; ".join(f"{name}: {value}" for name, value in record.facts.items())
        parts += [
            f"<h2>{html.escape(record.name)}</h2>",
            _image(record.plot, f"Learning rate, width and loss of {record.name}"),
            f"<p>{html.escape(facts)}</p><details><summary>A text of the narrow model"
            f"</summary><pre>{html.escape(record.sample)}</pre></details>",
        ]
    keys = dict.fromkeys(key for record in records for key in record.settings)
    values = [[key, *(r.settings.get(key, "-") for r in records)] for key in keys]
    names = ["key", *(record.name for record in records)]
    parts += ["<h2>Settings</h2>", _table([names, *values], ' class="text"')]
    return "\n".join([*parts, "</body></html>\n"])


def _table(rows: Sequence[Sequence[str]], kind: str = "") -> str:
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for row, tag in zip(rows, ["th", *["td"] * len(rows)], strict=False)
    ]
    return (
        f"<table{kind}>"
        + "\n".join(f"<tr>{line}</tr>" for line in lines)
        + ("</table>")
    )


def _image(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{data}">'
