"""The finished cells of the map: a file a seed, which lie in the repository."""

import dataclasses
import json
import pathlib

import keras

from benchmarks.paper.cell import Cell
from benchmarks.paper.store import versions
from keras_idea.files import json_digest, write_atomically

#: What is kept of a result.
KEPT = ("bits_per_byte", "train_bits", "tokens", "steps", "flops", "seconds", "width")


class Ledger:
    """Cells to results, in place of a `Store`; one checkpoint is kept, in memory.

    Processes with seeds of their own may share the folder.

    Args:
        folder: path of the folder, in which seed-0.json and so on lie.
        scale: `Scale`.
        corpus: `Corpus`.
    """

    def __init__(self, folder, scale, corpus):
        self._folder = pathlib.Path(folder)
        self._basis = {
            "scale": scale.identity(),
            "data": corpus.fingerprint(),
            "backend": keras.backend.backend(),
        }
        self._shared = None, None

    def result(self, cell: Cell, seed: int) -> dict | None:
        """What is kept of a cell, or None: it is not finished."""
        return _read(self._path(seed)).get(self.key(cell, seed))

    def save_result(self, cell: Cell, seed: int, result: dict) -> None:
        """Adds a cell to the file."""
        curve = result["curve"]["loss"]
        record = {
            "cell": changed(cell),
            "seed": seed,
            **{name: value for name, value in result.items() if name in KEPT},
            # The mean of the last stretch that the curve knows.
            "train_bits": curve[-1] if curve else None,
            "versions": versions(),
        }
        path = self._path(seed)
        records = _read(path) | {self.key(cell, seed): record}
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(records[key])}" for key in sorted(records)
        )
        write_atomically(path, "{\n" + lines + "\n}\n")

    def core_hours(self) -> float:
        """Hours of training that all cells together took, on a core each."""
        paths = self._folder.glob("seed-*.json")
        records = [record for path in paths for record in _read(path).values()]
        return sum(record["seconds"] for record in records) / 3600

    def key(self, cell: Cell, seed: int) -> str:
        """Str that tells a cell from any other, of other text or scale too."""
        what = {**self._basis, "cell": changed(cell), "seed": seed}
        return json_digest(what)[:16]

    def _path(self, seed):
        return self._folder / f"seed-{seed}.json"

    def nearest_prefix(self, stage, seed):
        """The end of the stage that was shared last, if it is this one; else None."""
        key, checkpoint = self._shared
        return checkpoint if key == (stage, seed) else None

    def save_prefix(self, stage, seed, checkpoint):
        """Keeps it in place of the one before."""
        self._shared = (stage, seed), checkpoint


def _read(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def changed(cell: Cell) -> dict:
    """The fields of a cell that are not at their default."""
    return {
        field.name: getattr(cell, field.name)
        for field in dataclasses.fields(Cell)
        if getattr(cell, field.name) != field.default
    }
