"""Whether a run begins or continues: its folder is looked at, and taken.

A run that is not finished continues with `--overwrite` too: the same command always
resumes it, also that of a job which is queued again. What has cost hours is replaced
only by another run, or if it is finished.
"""

import contextlib

from keras_idea.callbacks.checkpoint.files import verified_manifest
from keras_idea.errors import (
    CheckpointError,
    ConfigError,
    FormatError,
    RunFolderError,
)
from keras_idea.lm.runs.config import RunConfig, load_config
from keras_idea.lm.runs.run_folder import RunFolder


def claim_or_resume(
    folder: RunFolder,
    config: RunConfig,
    overwrite: bool,
    stack: contextlib.ExitStack,
    extend: bool = False,
) -> tuple[bool, int]:
    """Locks a run's folder until the stack is closed; whether the run there continues.

    `overwrite` says whether another run there may be replaced, `extend` whether it must
    be this one, to be made longer.

    Returns:
        bool, and the steps by which the run is longer than planned: the config's own,
        or those that it was extended by before.

    Raises:
        RunFolderError: if it may not be taken: another process writes to it, it
            holds another run, or it is no folder of runs. If there is none to extend.
    """
    if folder.is_running():
        stack.enter_context(folder.locked())  # says so, if it still is
    # Nothing is put into a folder of others.
    _check_can_start(config, folder, overwrite, extend)
    stack.enter_context(folder.locked())
    # Another process may have begun a run there, or ended one, in the meantime.
    goes_on = _check_can_start(config, folder, overwrite, extend)
    return goes_on, _extension(folder, config, goes_on)


def is_of_text(folder: RunFolder, fingerprint: str) -> bool:
    """Whether what a folder's checkpoints were trained on is this text.

    Damaged ones do not say it, and count as if they were.
    """
    for files in folder.checkpoint_files():
        for name in files.names():
            try:
                manifest = verified_manifest(files.folder / name, files=False)
            except FormatError:
                return False
            except CheckpointError:
                continue
            if manifest["facts"].get("identity") != text_identity(fingerprint):
                return False
    return True


def text_identity(fingerprint: str) -> dict[str, str]:
    """What must not change of a run's text, as its checkpoints hold it."""
    return {"text": fingerprint}


def _check_can_start(
    config: RunConfig, folder: RunFolder, overwrite: bool, extend: bool
) -> bool:
    """Whether the folder's run continues; refuses a folder that may not be taken."""
    goes_on = _can_resume(config, folder, overwrite)
    if extend and not goes_on:
        raise RunFolderError(
            "--extend-steps makes an unfinished run longer, and "
            f"{folder.shown!r} holds none: a finished run has no checkpoints left. For "
            "a new run, set `budget.recover_steps`."
        )
    if not goes_on:
        folder.check(overwrite)
    return goes_on


def _extension(folder: RunFolder, config: RunConfig, goes_on: bool) -> int:
    """The steps by which a run is longer than planned; refuses fewer than before."""
    wanted = config.budget.extend_steps
    begun = folder.unfinished()
    if not goes_on or begun is None:
        return wanted
    before = load_config(begun).budget.extend_steps
    if 0 < wanted < before:
        raise RunFolderError(
            f"The run in {folder.shown!r} was extended by {before} steps before. "
            f"Received: {wanted}. Give --extend-steps {before} or more: it counts from "
            "the planned end."
        )
    return max(wanted, before)


def _can_resume(config: RunConfig, folder: RunFolder, overwrite: bool) -> bool:
    """Whether the folder holds this run, begun and not finished."""
    begun = folder.unfinished()
    if begun is None:
        return False
    try:
        there = load_config(begun)
    except ConfigError as error:
        if overwrite:
            return False
        raise RunFolderError(
            f"{folder.shown!r} holds an unfinished run whose config is damaged: "
            f"{error} Put the file back as it was to resume that run, or give another "
            "folder with --output. (--overwrite deletes that run's checkpoints.)"
        ) from None
    changed = config.changes_from(there)
    if changed and not overwrite:
        raise RunFolderError(
            f"{folder.shown!r} holds an unfinished run of another config: "
            f"{changed}. {_hint(changed)}Set it back to resume that run, or give "
            "another folder with --output. (--overwrite deletes that run's "
            "checkpoints.)"
        )
    return not changed


def _hint(changed: str) -> str:
    """What else can be changed instead, of a key whose change is refused."""
    key = changed.partition(" ")[0]
    return _HINTS.get(key, "")


_LONGER = "To train longer, keep the steps and give --extend-steps N. "
_HINTS = {
    "data.batch_size": (
        "It counts the sequences of an optimizer step, whatever the parts: if memory "
        "runs out, keep it and raise `optimizer.gradient_accumulation_steps`. "
    ),
    "budget.recover_steps": _LONGER,
    "budget.prune_steps": _LONGER,
}
