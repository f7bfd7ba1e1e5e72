"""What was recorded, read again: no text, no backend and no training is needed."""

import json
import pathlib

from benchmarks.intervals import Estimate, estimate
from benchmarks.paper.cell import Cell
from benchmarks.paper.map.ledger import changed
from benchmarks.paper.paper_table import SeededRow, paired_difference
from benchmarks.record import REPOSITORY

#: Where everything lies that these pages are made of.
RESULTS = REPOSITORY / "benchmarks" / "results" / "paper"


class Recorded:
    """The finished cells of one study, whatever computed them; reads as a `Ledger`.

    Args:
        folder: path of the folder in which seed-0.json and so on lie.

    Raises:
        ValueError: if two records are of one cell and seed.
    """

    def __init__(self, folder: pathlib.Path):
        self._records: dict[tuple[str, int], dict] = {}
        for path in sorted(pathlib.Path(folder).glob("seed-*.json")):
            for record in json.loads(path.read_text(encoding="utf-8")).values():
                at = _key(record["cell"], record["seed"])
                if at in self._records:
                    raise ValueError(
                        f"{path.name} holds a cell twice. Received: cell={at[0]}, "
                        f"seed={at[1]}. Remove one of the two records."
                    )
                self._records[at] = record

    def result(self, cell: Cell, seed: int) -> dict | None:
        """The record of a cell, or None: it was never finished."""
        return self._records.get(_key(changed(cell), seed))

    def core_hours(self) -> float:
        """Hours of training that all cells together took, on a core each."""
        return sum(record["seconds"] for record in self._records.values()) / 3600


def _key(fields: dict, seed: int) -> tuple[str, int]:
    return json.dumps(fields, sort_keys=True), seed


class RecordedTable:
    """A table of the paper's kind, from the bits per byte of its rows by seed.

    Args:
        stem: str, its file's name without an ending: "mini-table-4".
        folder: path of the folder that it lies in.
    """

    def __init__(self, stem: str, folder: pathlib.Path = RESULTS):
        self.path = pathlib.Path(folder) / f"{stem}.json"
        self.facts = json.loads(self.path.read_text(encoding="utf-8"))
        self.rows = {row["name"]: _seeded(row) for row in self.facts["rows"]}

    def mean(self, name: str) -> Estimate:
        """Bits per byte of a row."""
        found = estimate(self.rows[name].values.values())
        assert found is not None
        return found

    def gap(self, name: str, reference: str) -> Estimate:
        """A row minus another, paired by seed."""
        found = paired_difference(self.rows[name], self.rows[reference])
        assert found is not None
        return found


def _seeded(row: dict) -> SeededRow:
    names = ("name", "reference", "width", "tokens", "flops", "seconds")
    values = {int(seed): bits for seed, bits in row["values"].items()}
    return SeededRow(values=values, **{name: row[name] for name in names})
