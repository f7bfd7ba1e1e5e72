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
) -> bool:
    """Locks a run's folder until the stack is closed; whether the run there continues.

    `overwrite` says whether another run there may be replaced.

    Raises:
        RunFolderError: if it may not be taken: another process writes to it, it
            holds another run, or it is no folder of runs.
    """
    if folder.is_running():
        stack.enter_context(folder.locked())  # says so, if it still is
    # Nothing is put into a folder of others.
    _check_can_start(config, folder, overwrite)
    stack.enter_context(folder.locked())
    # Another process may have begun a run there, or ended one, in the meantime.
    return _check_can_start(config, folder, overwrite)


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


def _check_can_start(config: RunConfig, folder: RunFolder, overwrite: bool) -> bool:
    """Whether the folder's run continues; refuses a folder that may not be taken."""
    goes_on = _can_resume(config, folder, overwrite)
    if not goes_on:
        folder.check(overwrite)
    return goes_on


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
            f"{error} Put the file back as it was to resume that run, give another "
            "folder with --output, or --overwrite to replace that run."
        ) from None
    changed = config.changes_from(there)
    if changed and not overwrite:
        raise RunFolderError(
            f"{folder.shown!r} holds an unfinished run of another config: "
            f"{changed}. Set it back to resume that run, give another folder with "
            "--output, or --overwrite to replace that run."
        )
    return not changed
