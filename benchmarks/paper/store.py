"""Where results and checkpoints lie, under names that say what they depend on."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform

import keras
import numpy as np

from benchmarks.paper.cell import SCRATCH, Cell
from benchmarks.paper.checkpoint import Checkpoint, load_checkpoint
from benchmarks.record import cpu_name
from keras_idea.errors import ArgumentError
from keras_idea.files import check_place, json_digest, write_atomically

#: Raised when the same cell would give another result: old ones are then not read.
FORMAT = 1
# Of names: 16 hexadecimal digits.
_DIGEST = functools.partial(hashlib.blake2b, digest_size=8)


class Store:
    """The folder of a grid.

        cells/<what>-<hash>-s<seed>.json     a finished cell
        prefixes/<hash>-s<seed>/<steps>/     an enlarged model that cells begin with
        tables/                              what is made of the cells

    The hash is of everything that the result depends on, so that one folder serves
    all tables and scales, and nothing is ever taken for something else.

    Args:
        folder: path of the folder.
        scale: `Scale`.
        corpus: `Corpus`.

    Raises:
        ValueError: if the folder, or one that it is in, is a file.
    """

    def __init__(self, folder, scale, corpus):
        self.folder = pathlib.Path(folder)
        check_place(
            self.folder,
            ArgumentError,
            f"The output folder {str(folder)!r} cannot be made",
            "Give another folder with --output.",
            folder=True,
        )
        self._basis = {
            "format": FORMAT,
            "scale": scale.identity(),
            "data": corpus.fingerprint(),
            "backend": keras.backend.backend(),
        }

    @property
    def tables(self) -> pathlib.Path:
        """The folder of the tables."""
        return self.folder / "tables"

    def result(self, cell: Cell, seed: int) -> dict | None:
        """The result of a cell; None: it is not finished.

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

    def results(self, cell: Cell) -> dict[int, dict]:
        """The results of a cell by seed, ascending: of all that are finished."""
        pattern = self._cell_path(cell, 0).name.replace("-s0.json", "-s*.json")
        paths = self.folder.joinpath("cells").glob(pattern)
        seeds = sorted(int(path.stem.rpartition("-s")[2]) for path in paths)
        return {seed: self.result(cell, seed) for seed in seeds}

    def save_result(self, cell: Cell, seed: int, result: dict) -> None:
        """Writes the result of a cell, whole or not at all."""
        path = self._cell_path(cell, seed)
        write_atomically(path, json.dumps(result))

    def nearest_prefix(self, stage, seed: int) -> Checkpoint | None:
        """The longest saved part of a shared stage, or None.

        Raises:
            CheckpointError: if it is damaged.
        """
        folder = self._prefix_folder(stage, seed)
        # Names with an ending are prefixes of an earlier version, made again.
        names = [path.name for path in folder.glob("*")]
        saved = [int(name) for name in names if name.isdecimal()]
        steps = max((n for n in saved if n <= stage.steps), default=None)
        return None if steps is None else load_checkpoint(folder / str(steps))

    def save_prefix(self, stage, seed: int, checkpoint: Checkpoint) -> None:
        """Writes the end of a shared stage."""
        checkpoint.save(self._prefix_folder(stage, seed) / str(stage.steps))

    def _cell_path(self, cell, seed):
        # Fields at their default are left out, so that a field that comes later
        # leaves old results valid.
        fields = {
            field.name: getattr(cell, field.name)
            for field in dataclasses.fields(Cell)
            if getattr(cell, field.name) != field.default
        }
        scratch = cell.pipeline == SCRATCH
        name = SCRATCH if scratch else f"{cell.pipeline}-{cell.method}"
        digest = json_digest({**self._basis, "cell": fields}, _DIGEST)
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
        return self.folder / "prefixes" / f"{json_digest(what, _DIGEST)}-s{seed}"


def versions() -> dict[str, str]:
    """What computed: package to version, and the CPU, between which results move."""
    backend = keras.backend.backend()
    return {
        "python": platform.python_version(),
        "keras": keras.version(),
        backend: importlib.metadata.version(backend),
        "numpy": np.__version__,
        "cpu": cpu_name(),
    }
