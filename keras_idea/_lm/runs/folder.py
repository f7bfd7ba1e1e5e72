"""The run folder: claimed by one process, written atomically."""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

from keras_idea._files import TEMPORARY, write_atomically
from keras_idea._lm.runs.config import RunConfig, load_config
from keras_idea._lm.runs.text import paths_read
from keras_idea._validation import require
from keras_idea.errors import ConfigError


class RunFolder:
    """The folder of one run.

    Args:
        path: path. A relative one counts from the working directory at this call.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.shown = str(pathlib.Path(path))  # as it was given, for messages
        self.path = pathlib.Path(os.path.abspath(path))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from carrying out a run in the folder.

        The lock ends with the process, even if that is killed.
        """
        filelock = require("filelock", "A run", "cli")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            # `keras-idea status` holds it for a moment.
            stack = filelock.FileLock(lock, timeout=1).acquire()
        except filelock.Timeout:
            raise ConfigError(
                f"Another process carries out the run in {self.shown!r}. Wait for it, "
                "or give another folder (--output)."
            ) from None
        with stack:
            yield

    def resumes(self, config: RunConfig, overwrite: bool) -> bool:
        """Says whether the folder holds this run, begun and not finished."""
        if not self.path.exists() or not any(self.path.iterdir()):
            return False
        began = self.path / "config.toml"
        if not began.is_file():
            raise ConfigError(
                f"{self.shown!r} is no run folder: it has no config.toml. Give another "
                "folder (--output)."
            )
        if self.status().get("state") == "finished":
            self.remove_checkpoints()  # of a run that was killed at the very end
            changed = ["it is finished"]
        else:
            changed = _changes(config, began)
        if changed and not overwrite:
            raise ConfigError(
                f"{self.shown!r} holds another run: {changed[0]}. Give another folder "
                "(--output), or put that run aside with --overwrite."
            )
        return not changed

    def claim(self, config: RunConfig, resumes: bool) -> None:
        """Puts an earlier run aside, unless it resumes; writes the config."""
        if not resumes and self.path.exists() and any(self.path.iterdir()):
            names = (f"{self.path.name}-{n}" for n in itertools.count(1))
            places = map(self.path.with_name, names)
            aside = next(place for place in places if not place.exists())
            os.rename(self.path, aside)
            print(f"The earlier run is now in {aside}", flush=True)
        self.path.mkdir(parents=True, exist_ok=True)
        self.write("config.toml", config.to_toml())

    def checkpoints(self, training: str) -> pathlib.Path:
        """The folder for the checkpoints of a training."""
        return self.path / "checkpoints" / training.replace(" ", "-")

    def remove_checkpoints(self) -> None:
        """Removes what only an unfinished run needs."""
        folder = self.path / "checkpoints"
        if folder.exists():
            # Out of sight first: a removal that is cut off leaves no damaged ones.
            gone = self.path / f"{TEMPORARY}checkpoints"
            shutil.rmtree(gone, ignore_errors=True)
            os.replace(folder, gone)
        for left in self.path.glob(f"{TEMPORARY}*"):
            shutil.rmtree(left, ignore_errors=True)

    def status(self) -> dict[str, Any]:
        """What `set_status` has written last; empty if nothing."""
        try:
            found = json.loads((self.path / "status.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def set_status(self, **facts: Any) -> None:
        """Writes status.json, which `keras-idea status` prints."""
        facts = {"run": self.shown, **facts, "time": round(time.time())}
        self.write("status.json", json.dumps(facts, indent=1) + "\n")

    def write(self, name: str, text: str) -> None:
        """Writes a text file, whole or not at all."""
        write_atomically(self.path / name, text)


def _changes(config: RunConfig, began: pathlib.Path) -> list[str]:
    try:
        return config.changes_from(load_config(began))
    except ConfigError as error:
        return [str(error)]


def check_places(config: RunConfig) -> None:
    """Rejects a run that would read what it writes, or put aside what it reads."""
    output = os.path.realpath(config.run.output)
    for path in paths_read(config):
        if _is_in(path, output):
            raise ConfigError(
                f"The run reads {path!r}, which is in its run folder. Set `run.output` "
                "to another folder."
            )
        if config.data.pattern is None and _is_in(output, path):
            raise ConfigError(
                f"The run folder is inside {path!r}, which the run reads as text. Set "
                "`run.output` to a folder outside of it."
            )


def _is_in(path: str, folder: str) -> bool:
    return pathlib.Path(path).is_relative_to(folder)
