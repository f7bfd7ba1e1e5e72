"""Where results and checkpoints lie, under names that say what they depend on."""

import dataclasses
import hashlib
import json
import os
import pathlib
import platform

import keras
import numpy as np

from benchmarks.paper.cell import Cell
from benchmarks.paper.checkpoint import load_checkpoint, save_checkpoint
from keras_idea.errors import ArgumentError

#: Raised when the same cell would give another result: old ones are then not read.
FORMAT = 1


class Store:
    """The folder of a grid.

        cells/<what>-<hash>-s<seed>.json     a finished cell
        prefixes/<hash>-s<seed>/<steps>.npz  an enlarged model that cells begin with
        tables/                              what is made of the cells

    The hash is of everything that the result depends on, so that one folder serves
    all tables and scales, and nothing is ever taken for something else.

    Args:
        folder: path of the folder.
        scale: `Scale`.
        corpus: `Corpus`.
    """

    def __init__(self, folder, scale, corpus):
        self.folder = pathlib.Path(folder)
        self._basis = {
            "format": FORMAT,
            "scale": scale.identity(),
            "data": corpus.fingerprint(),
            "backend": keras.backend.backend(),
        }

    @property
    def tables(self):
        """Path of the folder of the tables."""
        return self.folder / "tables"

    def result(self, cell, seed):
        """The result of a finished cell.

        Args:
            cell: `Cell`.
            seed: int.

        Returns:
            dict, or None if the cell is not finished.

        Raises:
            ValueError: if its file is damaged.
        """
        path = self._cell_path(cell, seed)
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"The result {str(path)!r} is damaged ({error}). Delete it; its cell "
                "is carried out again."
            ) from error

    def results(self, cell):
        """The results of a cell.

        Args:
            cell: `Cell`.

        Returns:
            dict of seed to result, ascending: of all seeds that are finished.
        """
        pattern = self._cell_path(cell, 0).name.replace("-s0.json", "-s*.json")
        paths = self.folder.joinpath("cells").glob(pattern)
        seeds = sorted(int(path.stem.rpartition("-s")[2]) for path in paths)
        return {seed: self.result(cell, seed) for seed in seeds}

    def save_result(self, cell, seed, result):
        """Writes the result of a cell, whole or not at all.

        Args:
            cell: `Cell`.
            seed: int.
            result: dict that JSON can hold.
        """
        write_atomically(self._cell_path(cell, seed), json.dumps(result))

    def nearest_prefix(self, stage, seed):
        """The longest saved part of a shared stage.

        Args:
            stage: `Stage` that is `shared`.
            seed: int.

        Returns:
            `Checkpoint` after at most `stage.steps` steps, or None.
        """
        folder = self._prefix_folder(stage, seed)
        saved = [int(path.stem) for path in folder.glob("*.npz")]
        steps = max((n for n in saved if n <= stage.steps), default=None)
        return None if steps is None else load_checkpoint(folder / f"{steps}.npz")

    def save_prefix(self, stage, seed, checkpoint):
        """Writes the end of a shared stage.

        Args:
            stage: `Stage` that is `shared`.
            seed: int.
            checkpoint: `Checkpoint`.
        """
        path = self._prefix_folder(stage, seed) / f"{stage.steps}.npz"
        save_checkpoint(path, checkpoint)

    def _cell_path(self, cell, seed):
        # Fields at their default are left out, so that a field that comes later
        # leaves old results valid.
        fields = {
            field.name: getattr(cell, field.name)
            for field in dataclasses.fields(Cell)
            if getattr(cell, field.name) != field.default
        }
        name = (
            cell.pipeline
            if cell.pipeline == "scratch"
            else (f"{cell.pipeline}-{cell.method}")
        )
        digest = _digest({**self._basis, "cell": fields})
        return self.folder / "cells" / f"{name}-{digest}-s{seed}.json"

    def _prefix_folder(self, stage, seed):
        decay, row_reduce, _ = stage.scores  # how rows are joined is no state
        what = {
            **self._basis,
            "width": stage.width,
            "rate": dataclasses.asdict(stage.rate),
            "optimizer": stage.optimizer,
            "scores": [decay, row_reduce],
            "versions": versions(),
        }
        return self.folder / "prefixes" / f"{_digest(what)}-s{seed}"


def write_atomically(path, text):
    """Writes a text file, whole or not at all.

    Args:
        path: Path.
        text: str.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def versions():
    """Dict of what computed: package to version."""
    import importlib.metadata

    backend = keras.backend.backend()
    return {
        "python": platform.python_version(),
        "keras": keras.version(),
        backend: importlib.metadata.version(backend),
        "numpy": np.__version__,
    }


def _digest(value):
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
