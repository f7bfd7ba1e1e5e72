"""`keras-idea report`: finished runs as one HTML page that needs no other file."""

import base64
import dataclasses
import html
import json
import os
import pathlib
import tomllib
from collections.abc import Sequence

from keras_idea._files import write_atomically
from keras_idea._lm.report.table import (
    COLUMNS,
    LEGEND,
    ResultRow,
    cells,
    to_markdown,
)
from keras_idea.errors import ArgumentError

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
th:first-child, td:first-child { text-align: left; }
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
    plot: bytes
    sample: str


def read_run(path: str | os.PathLike) -> RunRecord:
    """Reads the folder of a finished run."""
    path = pathlib.Path(path)
    try:
        config = tomllib.loads((path / "config.toml").read_text("utf-8"))
        facts = json.loads((path / "table.json").read_text("utf-8"))
        return RunRecord(
            os.fspath(path),
            {f"{t}.{k}": str(v) for t, keys in config.items() for k, v in keys.items()},
            [ResultRow(**row) for row in facts.pop("rows")],
            {name: str(value) for name, value in facts.items()},
            (path / "run.png").read_bytes(),
            (path / "sample.txt").read_text("utf-8", errors="replace"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(
            f"{str(path)!r} is no finished run: {error}. Give a folder that "
            "`keras-idea train` has finished."
        ) from None


def report(
    paths: Sequence[str | os.PathLike], output: str | os.PathLike = "report.html"
) -> pathlib.Path:
    """Writes a page about finished runs, and prints their tables."""
    output = pathlib.Path(output)
    if output.exists() and not (
        output.is_file() and output.read_bytes().startswith(MARK.encode())
    ):
        raise ArgumentError(
            f"{str(output)!r} is no report, so it is not replaced. Give another name "
            "(--output)."
        )
    records = [read_run(path) for path in paths]
    write_atomically(output, report_page(records).encode(errors="replace"))
    for record in records:
        print(f"\n{record.name}\n\n{to_markdown(record.rows)}", flush=True)
    return output


def report_page(records: Sequence[RunRecord]) -> str:
    """The HTML of a report."""
    title = html.escape("keras-idea: " + ", ".join(record.name for record in records))
    rows = [[record.name, *cells(row)] for record in records for row in record.rows]
    parts = [
        f"{MARK}\n{_HEAD}<title>{title}</title></head><body><h1>{title}</h1>",
        _table([["run", *(header for header, _, _ in COLUMNS)], *rows]),
        f"<p>{html.escape(LEGEND)}</p>",
    ]
    for record in records:
        name = html.escape(record.name)
        facts = "; ".join(f"{fact}: {value}" for fact, value in record.facts.items())
        png = base64.b64encode(record.plot).decode("ascii")
        parts += [
            f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{png}">',
            f"<p>{html.escape(facts)}</p><details><summary>A text of the narrow model"
            f"</summary><pre>{html.escape(record.sample)}</pre></details>",
        ]
    keys = dict.fromkeys(key for record in records for key in record.settings)
    values = [[key, *(r.settings.get(key, "-") for r in records)] for key in keys]
    names = ["key", *(record.name for record in records)]
    parts += ["<h2>Settings</h2>", _table([names, *values]), "</body></html>\n"]
    return "\n".join(parts)


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for row, tag in zip(rows, ["th", *["td"] * len(rows)], strict=False)
    ]
    return "<table>" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
