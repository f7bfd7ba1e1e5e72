"""Which tests `make test` runs, and on which backend: the folder says it, or a table.

| folder of `tests` | what it holds | `make test` | `make endurance` |
|---|---|---|---|
| `pure` | no model: files, text, NumPy, sources | on torch | on torch |
| `laws` | what holds on every backend | on each | on each |
| `backend/NAME` | what one backend alone has | on that one | on that one |
| `product` | runs, exports, evaluation, pages, damage | on torch | on each |

`benchmarks/tests` has the `pure` and the `product` of the benchmarks.

`tests/daily.csv` has the exceptions, each with its reason: the test, the backends of
`make test` ("none" leaves it to `make endurance`), and why. A test is named by its
file, from `tests` on or with `benchmarks/tests`, or `FILE::FUNCTION`, or
`FILE::FUNCTION[ROW]` for the parametrized rows whose id is ROW, or has it between its
dashes; the longest name holds.

A row of a law says it itself, with the marker `daily`: see tests/cases.py.

The rule: what takes more than some 1.5 seconds of CPU on a backend, a test with all its
rows, is left to endurance there, unless no other test would see the fault.
"""

import csv
import functools
import pathlib

import keras
import pytest

EACH = ("jax", "tensorflow", "torch")
TABLE = pathlib.Path(__file__).parents[1] / "daily.csv"
# Once: on torch, which compiles nothing and so is the quickest.
_FOLDERS = {"pure": ("torch",), "laws": EACH, "backend": EACH, "product": ("torch",)}


@functools.cache
def exceptions() -> dict[str, dict[str, tuple[str, ...]]]:
    """For each file or function of `daily.csv`, the backends of its rows ("": of all).

    Raises:
        ValueError: for a line without its reason, or with an unknown backend, or twice.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    with TABLE.open(encoding="utf-8", newline="") as lines:
        for number, line in enumerate(csv.DictReader(lines), 2):
            test, _, row = line["test"].removesuffix("]").partition("[")
            names = tuple(line["backends"].split())
            backends = () if names == ("none",) else names
            rows = found.setdefault(test, {})
            wrong = not names or set(backends) - set(EACH) or row in rows
            if wrong or not line["why"]:
                raise ValueError(f"{TABLE.name}, line {number}: {line}")
            rows[row] = backends
    return found


def daily_backends(item: pytest.Item) -> tuple[str, ...]:
    """The backends on which `make test` runs a test."""
    if mark := item.get_closest_marker("daily"):
        return mark.args
    of_file, of_function = _names(item)
    rows = exceptions().get(of_function, {})
    for row in rows:
        if row and _has_row(item, row):
            return rows[row]
    for name in (of_function, of_file):
        if "" in exceptions().get(name, {}):
            return exceptions()[name][""]
    return _FOLDERS[of_file.removeprefix("benchmarks/tests/").split("/")[0]]


def runs_daily(item: pytest.Item) -> bool:
    """Whether `make test` runs a test on the backend of this process."""
    return keras.backend.backend() in daily_backends(item)


def unused(items: list[pytest.Item]) -> list[str]:
    """Lines of the table that name no test, of the files that were collected."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        for name in _names(item):
            found.setdefault(name, []).append(item)
    return [
        f"{name}[{row}]" if row else name
        for name, rows in exceptions().items()
        for row in rows
        if name.partition("::")[0] in found
        if not any(not row or _has_row(item, row) for item in found.get(name, ()))
    ]


def _names(item):
    """Of its file and of its function, as the table has them."""
    function = item.nodeid.partition("[")[0].removeprefix("tests/")
    return function.partition("::")[0], function


def _has_row(item, row):
    spec = getattr(item, "callspec", None)
    return spec is not None and f"-{row}-" in f"-{spec.id}-"
