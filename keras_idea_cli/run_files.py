"""What lies in a run folder, read without Keras: plain TOML, JSON and CSV.

The package that writes these files cannot be imported here: that takes seconds. It
takes their names from here; tests/product/runs/test_status.py holds the formats.
"""

import csv
import dataclasses
import hashlib
import json
import math
import pathlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any

#: Locked by the process that carries out the run, and there no longer than the run.
LOCK = ".lock"
#: Written last: a run without it has not come to its end.
LAST = "sample.txt"
#: Where the run goes that comes with the package.
DEMO = pathlib.Path("runs/demo")
#: The names of a run's trainings: pruned, pruned without a teacher, from scratch.
TRAININGS = ("pruned", "pruned, no teacher", "narrow from scratch")
#: The name of the one training of a run with [elastic].
ELASTIC = "elastic"
# What reading a file that nobody should have changed may raise.
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_CHECKPOINT = re.compile(r"(?:checkpoint-(\d+)-)?step-(\d+)(?:-[0-9a-f]+)?")


class RunFilesError(Exception):
    """A path that is no run, or a damaged file of one; says what to do."""


@dataclasses.dataclass(frozen=True)
class SavedStep:
    """A checkpoint."""

    path: pathlib.Path
    step: int | None  # optimizer steps done; None: it is damaged
    time: float  # when it was written, as of `time.time`
    damage: str = ""  # what is wrong with it


@dataclasses.dataclass(frozen=True)
class Logged:
    """The last line of a training in metrics.csv."""

    step: int  # optimizer steps done
    width: int  # active neurons per FFN
    kv_groups: int | None  # key/value heads a layer; None: none are pruned
    loss: float  # bits per byte of the step's batch
    validation: tuple[int, float] | None  # step and bits per byte of the last one
    perplexity: float | None = None  # per token, of the last validation


_NOTHING = Logged(0, 0, None, math.nan, None)


@dataclasses.dataclass(frozen=True)
class Training:
    """One of the trainings of a run."""

    title: str
    place: int  # which one it is, from 1
    total: int  # its optimizer steps
    ends: Mapping[str, int]  # stage to the step at which it ends; in order
    saved: list[SavedStep]  # the newest first
    logged: Logged | None

    @property
    def newest(self) -> SavedStep | None:
        """The newest checkpoint that is not damaged, as far as its manifest tells."""
        return next((saved for saved in self.saved if not saved.damage), None)

    @property
    def damaged(self) -> list[SavedStep]:
        """The damaged checkpoints, the newest first."""
        return [saved for saved in self.saved if saved.damage]

    @property
    def step(self) -> int:
        """int, the last step that the folder knows of."""
        saved = 0 if self.newest is None else self.newest.step or 0
        return max(saved, 0 if self.logged is None else self.logged.step)

    @property
    def stage(self) -> str:
        """str, the stage of the next step; "" if it has no stages."""
        return next((name for name, end in self.ends.items() if self.step < end), "")


def run_folder_of(run: str | None) -> tuple[pathlib.Path, str | None]:
    """The folder of a run, and the TOML file that was named, if one was.

    Raises:
        RunFilesError: if there is no such run.
    """
    if run is None:
        return DEMO, None
    path = pathlib.Path(run)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        raise RunFilesError(f"{run!r} cannot be read: {error}. {_GIVE}") from None
    if is_file:
        output = _read_toml(path).get("run", {})
        output = output.get("output") if isinstance(output, dict) else None
        return pathlib.Path(str(output or f"runs/{path.stem}")), run
    if not is_folder:
        raise RunFilesError(f"There is no file or folder {run!r}. {_GIVE}")
    foreign = [entry.name for entry in path.iterdir() if entry.name != LOCK]
    if foreign and not (path / "config.toml").is_file():
        raise RunFilesError(
            f"{run!r} is no run folder: it has no config.toml, but {foreign[0]!r}. "
            f"{_GIVE}"
        )
    return path, None


_GIVE = "Give the folder of a run, or the TOML file that describes it."


def read_run_config(path: pathlib.Path) -> dict[str, Any]:
    """The description that a run has left in its folder, every key spelled out.

    Raises:
        RunFilesError: if it is damaged.
    """
    config = _read_toml(path)
    needed = _NEEDED_OF_WIDTHS if widths_of(config) else _NEEDED
    for table, keys in needed.items():
        for key, kind in keys.items():
            entries = config.get(table)
            if not isinstance(entries, dict) or type(entries.get(key)) is not kind:
                raise RunFilesError(
                    f"{str(path)!r} is damaged: it has no {table}.{key}. Restore the "
                    "file from a copy."
                )
    extended = config["budget"].get("extend_steps", 0)  # earlier runs had none
    if type(extended) is not int:
        raise RunFilesError(
            f"{str(path)!r} is damaged: budget.extend_steps is {extended!r}. Restore "
            "the file from a copy."
        )
    return config


_NEEDED: Mapping[str, Mapping[str, type]] = {
    "budget": dict.fromkeys(("enlarge_steps", "prune_steps", "recover_steps"), int),
    "run": {"output": str, "compare_from_scratch": bool},
    "distillation": {"compare_without": bool},
}
_NEEDED_OF_WIDTHS: Mapping[str, Mapping[str, type]] = {
    "budget": {"steps": int},
    "elastic": {"begin_step": int},
    "run": {"output": str},
}


def widths_of(config: Mapping[str, Any]) -> list[str]:
    """The names of the widths that a run trains together; none of one that prunes."""
    table = config.get("elastic")
    widths = table.get("widths") if isinstance(table, dict) else None
    return list(widths) if isinstance(widths, dict) else []


def total_steps(config: Mapping[str, Any]) -> int:
    """The optimizer steps of a run's description."""
    budget = config["budget"]
    stages = ("enlarge", "prune", "recover")
    planned = sum(budget.get(f"{name}_steps", 0) for name in stages)
    if widths_of(config):
        planned = budget["steps"]
    return int(planned + budget.get("extend_steps", 0))


def read_trainings(folder: pathlib.Path, config: Mapping[str, Any]) -> list[Training]:
    """The trainings of a run, in their order; there is one at least."""
    narrow, alone, scratch = TRAININGS
    steps, total = config["budget"], total_steps(config)
    if widths_of(config):
        names = {ELASTIC: "model of several widths"}
        stages = {"wide": config["elastic"]["begin_step"], "all widths": total}
    else:
        names = {narrow: "pruned model"}
        if config["distillation"]["compare_without"]:
            names[alone] = "pruned model without the teacher"
        if config["run"]["compare_from_scratch"]:
            names[scratch] = "scratch baseline"
        pruning = steps["enlarge_steps"]
        recovery = pruning + steps["prune_steps"]
        stages = {"wide": pruning, "pruning": recovery, "recovery": total}
    logged = _read_metrics(folder / "metrics.csv")
    return [
        Training(
            title,
            place,
            total,
            {} if name == scratch else stages,
            _read_checkpoints(folder / "checkpoints" / name.replace(" ", "-")),
            logged.get(name),
        )
        for place, (name, title) in enumerate(names.items(), 1)
    ]


def _read_toml(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFilesError(f"{str(path)!r} cannot be read: {error}. {_GIVE}") from None


def _read_checkpoints(folder: pathlib.Path) -> list[SavedStep]:
    """The checkpoints of a training, the newest first; their arrays are not read."""
    # By the order of writing; the oldest format names the step alone.
    ordered = sorted(
        (int(found[1] or 0), path.name)
        for path in folder.glob("*step-*")
        if (found := _CHECKPOINT.fullmatch(path.name))
    )
    return [_read_checkpoint(folder / name) for _, name in reversed(ordered)]


def _read_checkpoint(path: pathlib.Path) -> SavedStep:
    manifest = path / "manifest.json"
    try:
        written = manifest.stat().st_mtime
        content = json.loads(manifest.read_text(encoding="utf-8"))
        digest = content.pop("digest")
        text = json.dumps(content, sort_keys=True)
        if digest != hashlib.blake2b(text.encode()).hexdigest():
            raise ValueError("it has been changed")
        missing = [name for name in content["files"] if not (path / name).is_file()]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return SavedStep(path, int(content["step"]), written)
    except _DAMAGE as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        when = path.stat().st_mtime if path.exists() else 0.0
        return SavedStep(path, None, when, f"manifest.json cannot be used ({reason}).")


def _read_metrics(path: pathlib.Path) -> dict[str, Logged]:
    """The last logged step of each training; what cannot be read is left out."""
    logged: dict[str, Logged] = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                name, step = line["run"], int(line["step"])
                loss, width = float(line["bits_per_byte"]), int(line["width"])
                heads = line.get("kv_groups")
                last = logged.get(name, _NOTHING)
                validation, perplexity = last.validation, last.perplexity
                if bits := line["validation"]:
                    validation = step, float(bits)
                    text = line.get("validation_perplexity_per_token")
                    perplexity = float(text) if text else None
                if math.isfinite(loss):
                    kv_groups = int(heads) if heads else None
                    logged[name] = Logged(
                        step, width, kv_groups, loss, validation, perplexity
                    )
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        pass
    return logged
