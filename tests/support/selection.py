"""Which tests `make test` runs, and on which backend: the folder says it, or a marker.

| folder of `tests` | what it holds | `make test` | `make endurance` |
|---|---|---|---|
| `pure` | no model: files, text, NumPy, sources | on torch | on torch |
| `laws` | what holds on every backend | on torch | on each |
| `backend/NAME` | what one backend alone has | on that one | on that one |
| `product` | runs, exports, evaluation, pages, damage | on torch | on each |

`benchmarks/tests` has the `pure` and the `product` of the benchmarks.

A test, or a row of one, with the marker `daily` runs where it says instead, and with
`daily()` only at `make endurance`. What is computed runs on each backend, cheaply; what
Python decides runs on torch, which compiles nothing and so is the quickest.
"""

from collections.abc import Collection, Iterable
from typing import Any

import keras
import pytest


def daily_backends(item: pytest.Item) -> tuple[str, ...]:
    """The backends on which `make test` runs a test."""
    if mark := item.get_closest_marker("daily"):
        return mark.args
    _, is_of_one, file = item.nodeid.partition("tests/backend/")
    return (file.partition("/")[0],) if is_of_one else ("torch",)


def rows(names: Iterable[str], daily: Collection[str]) -> list[Any]:
    """Rows of `parametrize`, of which `make test` runs some."""
    night = pytest.mark.daily()
    return [pytest.param(n, marks=() if n in daily else night, id=n) for n in names]


def runs_daily(item: pytest.Item) -> bool:
    """Whether `make test` runs a test on the backend of this process."""
    return keras.backend.backend() in daily_backends(item)
