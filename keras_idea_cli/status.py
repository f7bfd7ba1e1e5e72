"""`keras-idea status`: where a run is, read from its folder, without Keras."""

import pathlib
import shlex
import sys
import time
from collections.abc import Mapping
from typing import Any

from keras_idea_cli.locks import is_locked
from keras_idea_cli.run_files import (
    DEMO,
    LAST,
    LOCK,
    Logged,
    RunFilesError,
    Training,
    read_run_config,
    read_trainings,
    run_folder_of,
    total_steps,
    widths_of,
)

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def status(run: str | None) -> int:
    """Prints where a run is; returns the exit status: 0, or 2 for what is no run.

    Args:
        run: path of a run folder, or of the TOML file that describes the run; None
            stands for the demo.
    """
    try:
        lines = status_lines(run)
    except RunFilesError as error:
        print(f"keras-idea: {error}", file=sys.stderr)
        return 2
    width = max(len(label) for label, _ in lines) + 1
    for label, text in lines:
        print(f"{label + ':':{width}}  {text}")
    return 0


def status_lines(run: str | None) -> list[tuple[str, str]]:
    """Where a run is, as pairs of a label and a text.

    Raises:
        RunFilesError: if there is no such run, or a file of it is damaged.
    """
    folder, described = run_folder_of(run)
    begun = (folder / "config.toml").is_file()
    lines = [("Run folder", str(folder))]
    if not begun:
        return [*lines, *_not_begun(folder, described)]
    config = read_run_config(folder / "config.toml")
    if (folder / LAST).exists():
        return [*lines, *_finished(folder, config)]
    trainings = read_trainings(folder, config)
    current = next((t for t in trainings if t.step < t.total), trainings[-1])
    return [
        *lines,
        ("State", _state(folder)),
        ("Part", f"{current.title} ({current.place} of {len(trainings)})"),
        ("Step", f"{current.step:,} of {current.total:,}{_stage(current)}"),
        *_figures(current),
        *_checkpoints(current),
        ("Resume with", _command(folder, described, config)),
    ]


def _not_begun(folder: pathlib.Path, described: str | None) -> list[tuple[str, str]]:
    if is_locked(folder / LOCK):
        return [("State", "starting: a process is preparing the run")]
    begin = "keras-idea train"
    if described is not None:
        begin += f" {shlex.quote(described)}"
    elif folder != DEMO:
        begin += f" FILE.toml --output {shlex.quote(str(folder))}"
    return [("State", "not begun"), ("Begin with", begin)]


def _finished(folder: pathlib.Path, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    total, widths = total_steps(config), widths_of(config)
    own, called = "narrow.keras", "Narrow model"
    if widths:
        own, called = "full.keras", "Model"
    saved = "preset" if (folder / "preset").is_dir() else own
    return [
        ("State", f"finished {_when((folder / LAST).stat().st_mtime)}"),
        ("Step", f"{total:,} of {total:,}"),
        (called, str(folder / saved)),
        *([("Widths", ", ".join(["full", *widths]))] if widths else []),
        ("Results", str(folder / "table.md")),
    ]


def _state(folder: pathlib.Path) -> str:
    running = is_locked(folder / LOCK)
    if running is None:
        return "not finished; whether a process is working on it is unknown here"
    return "running" if running else "stopped: no process is working on it"


def _stage(training: Training) -> str:
    if training.step >= training.total:
        return ": trained, the results are not written yet"
    return f", {training.stage} stage" if training.stage else ""


def _figures(training: Training) -> list[tuple[str, str]]:
    """The width and the losses that lie in the folder, of the last logged step."""
    logged = training.logged
    if logged is None:
        return []
    lines = [
        ("FFN width", f"{logged.width:,} neurons at step {logged.step:,}"),
        *_heads(logged),
        ("Loss", f"{logged.loss:.4f} bits per byte at step {logged.step:,}"),
    ]
    if logged.validation is not None:
        step, bits = logged.validation
        said = f"{bits:.4f} bits per byte"
        if logged.perplexity is not None:
            said += f", perplexity per token {logged.perplexity:.2f}"
        lines.append(("Validation", f"{said} at step {step:,}"))
    return lines


def _heads(logged: Logged) -> list[tuple[str, str]]:
    if logged.kv_groups is None:
        return []
    return [("KV heads", f"{logged.kv_groups} a layer at step {logged.step:,}")]


def _checkpoints(training: Training) -> list[tuple[str, str]]:
    lines = [
        ("Damaged", f"{saved.path}: {saved.damage} It is skipped.")
        for saved in training.damaged
    ]
    newest = training.newest
    if newest is not None:
        said = f"step {newest.step:,}, written {_when(newest.time)}"
    elif training.damaged:
        said = (
            "none that can be read. Restore one from a copy, or delete "
            f"{str(training.damaged[0].path.parent)!r} to start this part at step 0"
        )
    else:
        said = "none yet; this part starts at step 0"
    return [*lines, ("Checkpoint", said)]


def _when(then: float) -> str:
    """How long ago, and the time itself."""
    seconds = max(0, round(time.time() - then))
    name, unit = next(
        ((name, unit) for name, unit in _UNITS if seconds >= unit), _UNITS[-1]
    )
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))
    count = seconds // unit
    return f"{count:,} {name}{'s' * (count != 1)} ago ({clock})"


def _command(
    folder: pathlib.Path, described: str | None, config: Mapping[str, Any]
) -> str:
    """The command that resumes the run."""
    if described is not None:
        return f"keras-idea train {shlex.quote(described)}"
    own = f"keras-idea train {shlex.quote(str(folder / 'config.toml'))}"
    output = pathlib.Path(config["run"]["output"])
    if output.resolve() == folder.resolve():
        return own
    return f"{own} --output {shlex.quote(str(folder))}"
