"""Whether a run begins or goes on: its folder is looked at, and taken."""

import contextlib

from keras_idea.errors import ConfigError, RunFolderError
from keras_idea.runs.config import RunConfig, load_config
from keras_idea.runs.run_folder import RunFolder


def take_folder(
    folder: RunFolder,
    config: RunConfig,
    overwrite: bool,
    stack: contextlib.ExitStack,
) -> bool:
    """Locks a run's folder until the stack is closed; whether the run there goes on.

    `overwrite` says whether another run there may be replaced.

    Raises:
        RunFolderError: if it may not be taken: another process writes to it, it
            holds another run, or it is no folder of runs.
    """
    if folder.is_running():
        stack.enter_context(folder.locked())  # says so, if it still is
    _may_begin(config, folder, overwrite)  # nothing is put into a folder of others
    stack.enter_context(folder.locked())
    # Another process may have begun a run there, or ended one, in the meantime.
    return _may_begin(config, folder, overwrite)


def _may_begin(config: RunConfig, folder: RunFolder, overwrite: bool) -> bool:
    """Whether the folder's run goes on; refuses a folder that may not be taken."""
    goes_on = not overwrite and _goes_on(config, folder)
    if not goes_on:
        folder.check(overwrite)
    return goes_on


def _goes_on(config: RunConfig, folder: RunFolder) -> bool:
    """Whether the folder holds this run, begun and not finished."""
    begun = folder.unfinished()
    if begun is None:
        return False
    try:
        there = load_config(begun)
    except ConfigError as error:
        raise RunFolderError(
            f"{str(folder.path)!r} holds an unfinished run whose config is damaged: "
            f"{error} Put the file back as it was to resume that run, give another "
            "folder with --output, or --overwrite to replace that run."
        ) from None
    changed = config.changes_from(there)
    if changed:
        raise RunFolderError(
            f"{str(folder.path)!r} holds an unfinished run of another config: "
            f"{changed}. Set it back to resume that run, give another folder with "
            "--output, or --overwrite to replace that run."
        )
    return True
