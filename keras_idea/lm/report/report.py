"""`keras-idea report`: finished runs side by side, as a page and in the terminal."""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_idea.errors import ReportRefused
from keras_idea.files import check_place, write_atomically
from keras_idea.lm.report.page import MARK, report_page
from keras_idea.lm.report.run_record import read_runs
from keras_idea.lm.report.table import print_table, standard_output
from keras_idea.validation import require

if TYPE_CHECKING:
    import rich.console

_MEND = "Give another name with --output."


def report(
    paths: Sequence[str | os.PathLike],
    output: str | os.PathLike = "report.html",
    console: "rich.console.Console | None" = None,
) -> pathlib.Path:
    """Writes a page about one or several runs, and prints their tables.

    Args:
        paths: non-empty list of path, folders of finished runs.
        output: path of the HTML file. An earlier report there is replaced, another
            file never.
        console: `rich.console.Console` or None: the standard output.

    Returns:
        Path of the page.

    Raises:
        ReportRefused: if the page cannot be written there.
        RunRecordError: for a folder that no report can be made of.

    Example:
    >>> path = report(["finished"], "runs.html")
    <BLANKLINE>
    finished...
    >>> path.name
    'runs.html'
    """
    console = console or standard_output()
    escape = require("rich.markup", "A report", "cli").escape
    output = pathlib.Path(output)
    _check_output(output)
    records = read_runs(paths)
    title = "keras-idea: " + ", ".join(record.name for record in records)
    _write(output, report_page(records, title))
    for record in records:
        facts = [record.facts.get(name) for name in ("backend", "machine")]
        known = ", ".join(str(fact) for fact in facts if fact is not None)
        name = f"{record.name} ({known})" if known else record.name
        console.print(f"\n[bold]{escape(name)}[/bold]")
        print_table(record.rows, console)
    return output


def _check_output(output: pathlib.Path) -> None:
    check_place(output, ReportRefused, f"{str(output)!r} cannot be written", _MEND)
    if output.is_dir():
        raise ReportRefused(
            f"{str(output)!r} is a folder. Give the name of a file with --output."
        )
    if output.exists():
        with open(output, "rb") as file:
            if file.read(len(MARK)) != MARK.encode():
                raise ReportRefused(
                    f"{str(output)!r} is no report of keras-idea and is never "
                    f"overwritten. {_MEND}"
                )


def _write(output: pathlib.Path, page: str) -> None:
    """Whole or not at all."""
    try:
        write_atomically(output, page.encode(errors="replace"))
    except OSError as error:
        raise ReportRefused(
            f"{str(output)!r} cannot be written: {error.strerror}. {_MEND}"
        ) from None
