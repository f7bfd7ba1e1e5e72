"""Where a run reads and where it writes: neither is in the other's way.

A run replaces and deletes what is in its own folder, so nothing that it reads may be
there. And what it writes must not be part of its text: the text would change while it
trains, the run could not resume, and the next run would train on its figures.

It is asked of a run that is to be carried out, not of its config: relative paths count
from the working directory, and a finished run is read from any.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator

from keras_idea.errors import ConfigError
from keras_idea.lm.data.documents import is_hidden
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.run_folder import FILES, FOLDERS

# What a run leaves in its folders, and a cache of tokens in its own.
_PRESET = ("config.json", "tokenizer.json", "model.weights.h5", "merges.txt")
_RUN = (*FILES, *(f"preset/assets/{name}" for name in _PRESET), "checkpoints/a/b.json")
_CACHE = ("0123456789abcdef.ids",)


def check_file(file: str | os.PathLike, config: RunConfig) -> None:
    """Refuses a run whose TOML file it would delete; its own config.toml it keeps.

    Raises:
        ConfigError: says where the file must not be.
    """
    own = os.path.join(config.run.output, "config.toml")
    if _is_replaced(file, config.run.output) and _whole(file) != _whole(own):
        _refuse_inside(config, "The file of a run", os.fspath(file))


def check_places(config: RunConfig) -> None:
    """Refuses a run that would read what it writes, or delete what it reads.

    Raises:
        ConfigError: names both keys, and what to set.
    """
    output = config.run.output
    for key, path in [*_inputs(config), *_texts(config)]:
        if _is_replaced(path, output):
            _refuse_inside(config, f"`{key}`", path)
    for key, path in _caches(config):
        # Wherever it is there: with it, the folder is one of others.
        if _is_in(path, output):
            _refuse_inside(config, f"`{key}`", path)
    for key, path in _texts(config):
        written = [(output, _RUN, f"run.{config.run.describe('output')}")]
        for name, cache in _caches(config):
            written.append((cache, _CACHE, f"{name}={cache!r}"))
        for folder, names, setting in written:
            if _reads(config, key, path, folder, names):
                raise ConfigError(
                    f"`{key}` must not be a folder that holds what the run writes, "
                    f"which it would read as text. Received: {path!r}, with {setting}. "
                    f"Set `{setting.partition('=')[0]}` to a folder outside of it, or "
                    f"`{key}` to one of its folders."
                )


def _refuse_inside(config: RunConfig, what: str, path: str) -> None:
    raise ConfigError(
        f"{what} must not be inside run.output, which the run may replace. Received: "
        f"{path!r}, with run.{config.run.describe('output')}. Set `run.output` to "
        "another folder."
    )


def _inputs(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Keys and paths of the models that a run reads."""
    for key, path in (
        ("model.preset", config.model.preset),
        ("distillation.teacher", config.distillation.teacher),
    ):
        if path is not None:
            yield key, path


def _texts(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Keys and paths of the text that a run reads."""
    data, corpus, chat = config.data, config.corpus, config.chat
    if not corpus.given and not chat.given:
        if data.text != "stdlib":
            yield "data.text", data.text
        return
    if corpus.dataset is not None and os.path.isdir(corpus.dataset):
        yield "corpus.dataset", corpus.dataset
    for name, table in (("corpus", corpus), ("chat", chat)):
        for key in ("paths", "validation_paths"):
            for path in getattr(table, key) or ():
                yield f"{name}.{key}", path


def _caches(config: RunConfig) -> Iterator[tuple[str, str]]:
    for name, table in (("corpus", config.corpus), ("chat", config.chat)):
        if table.given:
            yield f"{name}.cache", table.cache


def _reads(
    config: RunConfig, key: str, path: str, folder: str, names: Iterable[str]
) -> bool:
    """Whether a text is a folder of which files in `folder` are read.

    Those are hidden below a folder that is, and a pattern may leave them out.
    """
    if not os.path.isdir(path) or not _is_in(folder, path):
        return False
    below = pathlib.Path(_whole(folder)).relative_to(_whole(path))
    if is_hidden(below):
        return False
    files = [below / name for name in names]
    pattern = config.corpus.pattern if key.startswith("corpus.") else None
    if pattern is not None:
        return any(file.match(pattern) for file in files)
    return names is _RUN  # a cache has no file that is read as text


def _whole(path: str | os.PathLike) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL in it: nothing is there
        return os.fspath(path)


def _is_replaced(path: str | os.PathLike, output: str) -> bool:
    """Whether a path is a run folder, or what a run replaces there.

    Anything else in it is another's: such a folder is refused, see `RunFolder`.
    """
    if not _is_in(path, output) or os.path.isfile(output):
        return False
    below = pathlib.Path(_whole(path)).relative_to(_whole(output)).parts
    return not below or below[0] in (*FILES, *FOLDERS)


def _is_in(path: str | os.PathLike, folder: str | os.PathLike) -> bool:
    """Whether a path is a folder, or below it; links are followed."""
    whole = pathlib.Path(_whole(path))
    return pathlib.Path(_whole(folder)) in (whole, *whole.parents)
