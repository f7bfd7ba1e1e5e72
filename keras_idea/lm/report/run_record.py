"""What a finished run left in its folder, read back and checked."""

import csv
import dataclasses
import json
import math
import os
import pathlib
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from keras_idea.errors import RunRecordError
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.table import ResultRow

_Content = TypeVar("_Content")
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A finished run."""

    name: str
    path: pathlib.Path
    settings: dict  # "table.key" to value, its description
    rows: list[ResultRow]
    facts: dict  # what else its table.json says, such as the backend
    curves: list[TrainingCurve]  # the pruned one first
    picture: bytes  # PNG
    sample: str  # what the narrow model wrote


def read_run(path: str | os.PathLike) -> RunRecord:
    """Reads the folder of a finished run.

    Raises:
        RunRecordError: if it is no run folder, the run is not finished, or a file
            in it is broken.
    """
    path = pathlib.Path(path)
    if not (path / "config.toml").is_file():
        what = "it has no config.toml" if path.is_dir() else "there is no such folder"
        raise RunRecordError(
            f"{str(path)!r} is no run folder: {what}. Give a folder that `keras-idea "
            "train` has written."
        )
    missing = [name for name in _READERS if not (path / name).is_file()]
    if missing:
        raise RunRecordError(
            f"The run in {str(path)!r} is not finished: it has no {missing[0]} yet. "
            "Let `keras-idea train` come to its end first."
        )
    found = {name: _read(path / name, read) for name, read in _READERS.items()}
    rows, facts = found["table.json"]
    return RunRecord(
        name=path.resolve().name,
        path=path,
        settings=found["config.toml"],
        rows=rows,
        facts=facts,
        curves=found["metrics.csv"],
        picture=found["run.png"],
        sample=found["sample.txt"],
    )


def read_runs(paths: Sequence[str | os.PathLike]) -> list[RunRecord]:
    """Reads several runs, and gives those that are called alike their whole path.

    Raises:
        RunRecordError: as `read_run`, and if a folder is given twice.
    """
    resolved = [_resolved(path) for path in paths]
    for index, path in enumerate(resolved):
        if path in resolved[:index]:
            raise RunRecordError(f"The run {str(paths[index])!r} is given twice.")
    records = [read_run(path) for path in paths]
    names = [record.name for record in records]
    return [
        record
        if names.count(record.name) == 1
        else dataclasses.replace(record, name=str(record.path))
        for record in records
    ]


def _resolved(path: str | os.PathLike) -> pathlib.Path:
    try:
        pathlib.Path(path).exists()  # an error for a path that is too long
        return pathlib.Path(path).resolve()
    except (OSError, ValueError) as error:
        raise RunRecordError(
            f"{str(path)!r} is no run folder: {error}. Give a folder that `keras-idea "
            "train` has written."
        ) from None


def _read(path: pathlib.Path, read: Callable[[bytes], _Content]) -> _Content:
    try:
        return read(path.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise RunRecordError(
            f"{str(path)!r} is broken ({reason}). Restore it, or train that run again."
        ) from None


def _settings(content: bytes) -> dict[str, Any]:
    tables = tomllib.loads(content.decode())
    if not all(isinstance(table, dict) for table in tables.values()):
        raise ValueError("a key outside of the tables")
    return {
        f"{table}.{key}": value
        for table, entries in tables.items()
        for key, value in entries.items()
    }


def _table(content: bytes) -> tuple[list[ResultRow], dict]:
    facts = json.loads(content.decode())
    if not isinstance(facts, dict) or not isinstance(facts.get("rows"), list):
        raise ValueError("it holds no rows")
    names = [field.name for field in dataclasses.fields(ResultRow)]
    # Tables of earlier versions have no perplexity per token.
    given = [{"perplexity_per_token": None, **row} for row in facts["rows"]]
    rows = [ResultRow(**{name: row[name] for name in names}) for row in given]
    for row in rows:
        numbers = [getattr(row, name) for name in names[1:]]
        if not isinstance(row.name, str) or not all(
            x is None or isinstance(x, (int, float)) for x in numbers
        ):
            raise ValueError(f"a row that is no result: {row}")
    if not rows:
        raise ValueError("its table is empty")
    return rows, {key: value for key, value in facts.items() if key != "rows"}


def _curves(content: bytes) -> list[TrainingCurve]:
    """The curves of a metrics file; see `keras_idea.lm.report.curves.metrics_csv`."""
    lines: dict = {}
    reader = csv.DictReader(content.decode().splitlines())
    fields = reader.fieldnames or []
    widths = [name for name in fields if name.endswith(_OF_WIDTH)]
    for number, line in enumerate(reader, 2):
        try:
            values = [
                float(line[key]) for key in ("step", "bits_per_byte", "learning_rate")
            ]
            values.append(int(line["width"]))
            # Files of earlier versions do not have the last two columns.
            kv_groups, perplexity = map(line.get, _LATER)
            at_widths = map(line.get, widths)
            for last in (line["validation"], kv_groups, perplexity, *at_widths):
                values.append(float(last) if last else math.nan)
            lines.setdefault(line["run"], []).append(values)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number}: {error}") from None
    if not lines:
        raise ValueError("it has no line of numbers")
    names = [name.removesuffix(_OF_WIDTH) for name in widths]
    return [_curve(name, np.array(values), names) for name, values in lines.items()]


_LATER = ("kv_groups", "validation_perplexity_per_token")
_OF_WIDTH = "_validation"


def _curve(name: str, values: np.ndarray, widths: Sequence[str]) -> TrainingCurve:
    step, loss, rate, width, validation, heads, perplexity, *judged = values.T

    def at_steps(figures: np.ndarray) -> dict[int, float]:
        known = ~np.isnan(figures)
        return dict(zip(step[known].astype(int), figures[known], strict=True))

    return TrainingCurve(
        name=name,
        steps=step.astype(int),
        loss=loss,
        learning_rate=rate,
        width=width.astype(int),
        validation=at_steps(validation),
        kv_groups=None if np.isnan(heads).any() else heads.astype(int),
        perplexity=at_steps(perplexity),
        at_widths=dict(zip(widths, map(at_steps, judged), strict=True)),
    )


def _picture(content: bytes) -> bytes:
    if not content.startswith(_PNG) or not content.endswith(_PNG_END):
        raise ValueError("no whole PNG picture")
    return content


_READERS: dict[str, Callable[[bytes], Any]] = {
    "config.toml": _settings,
    "metrics.csv": _curves,
    "table.json": _table,
    "run.png": _picture,
    "sample.txt": lambda content: content.decode(errors="replace"),
}
