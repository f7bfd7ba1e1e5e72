"""Which tests `make test` runs, and on which backend: the folder says it, or a mark.

| folder of `tests` | what it holds | `make test` | `make endurance` |
|---|---|---|---|
| `pure` | no model: files, text, NumPy, sources | on torch | on torch |
| `laws` | what holds on every backend | on each | on each |
| `backend/NAME` | what one backend alone has | on that one | on that one |
| `product` | runs, exports, evaluation, pages, damage | on torch | on each |

A mark in a file says where a test is an exception, and why:

    @pytest.mark.daily("torch", "jax", why="tensorflow traces it for a minute")
    @pytest.mark.daily(*EACH, rows=("llama3",), why="one family on each")
    @pytest.mark.nightly(why="twenty processes are killed")

`daily` names the backends of `make test`, `nightly` leaves a test to `make endurance`.
With `rows` a mark holds for the parametrized rows whose id is one of these, or has it
between its dashes. What takes more than some 1.5 seconds of CPU on a backend, a test
with all its rows, is left to endurance there, unless no other test would see the fault.
"""

import keras
import pytest

EACH = ("jax", "tensorflow", "torch")
# Once: on torch, which compiles nothing and so is the quickest.
_FOLDERS = {"pure": ("torch",), "laws": EACH, "backend": EACH, "product": ("torch",)}


def daily_backends(item: pytest.Item) -> tuple[str, ...]:
    """The backends on which `make test` runs a test.

    Raises:
        pytest.UsageError: for a mark without its reason, or with an unknown backend.
    """
    marks = [m for m in item.iter_markers() if m.name in ("daily", "nightly")]
    holding = [mark for mark in marks if _holds(mark, item)]
    # One that names rows is the exception to one that does not.
    for mark in sorted(holding, key=lambda mark: "rows" not in mark.kwargs):
        if not mark.kwargs.get("why") or set(mark.args) - set(EACH):
            raise pytest.UsageError(f"{item.nodeid}: {mark} needs why=, and backends.")
        return mark.args
    return _FOLDERS[item.nodeid.split("/")[1]]


def runs_daily(item: pytest.Item) -> bool:
    """Whether `make test` runs a test on the backend of this process."""
    return keras.backend.backend() in daily_backends(item)


def _holds(mark: pytest.Mark, item: pytest.Item) -> bool:
    rows = mark.kwargs.get("rows")
    return rows is None or any(f"-{row}-" in f"-{_row_of(item)}-" for row in rows)


def _row_of(item: pytest.Item) -> str:
    spec = getattr(item, "callspec", None)
    return "" if spec is None else spec.id
