"""A run's TOML, read and checked: unknown tables and keys are refused."""

import dataclasses
import importlib.resources
import os
import pathlib
import tomllib
import typing
from collections.abc import Collection, Iterable

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config.elastic_table import (
    UnprunedModelConfig,
    is_elastic,
    refuse_pruning,
)
from keras_idea.lm.runs.config.fields import Table
from keras_idea.lm.runs.config.run_config import RunConfig
from keras_idea.validation import did_you_mean


def load_config(path: str | os.PathLike | None = None) -> RunConfig:
    """Reads and checks a run's description.

    Args:
        path: path of a TOML file; None: the demo that comes with the package.

    Raises:
        ConfigError: if the file cannot be read, is no TOML, or holds an unknown
            key or a value that cannot be: which one, and how to mend it.

    Example:
    >>> load_config().model.hidden_dim
    512
    """
    if path is None:
        demo = importlib.resources.files("keras_idea.lm.runs") / "demo.toml"
        return parse_config(demo.read_text(encoding="utf-8"), name="demo")
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a mark first
    except (OSError, ValueError) as error:  # a NUL in the path, or no UTF-8
        raise ConfigError(
            f"Cannot read the config {str(path)!r}: {error}. Give a TOML file in UTF-8."
        ) from None
    try:
        return parse_config(text, name=path.stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, name: str = "run") -> RunConfig:
    """Reads and checks TOML text; a run without an output goes to `runs/<name>`."""
    try:
        received = tomllib.loads(text)
    # Besides its own error: an integer of too many digits, brackets in brackets.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"This is not valid TOML: {error}.") from None
    kinds = typing.get_type_hints(RunConfig)
    _refuse_unknown("table", received, kinds)
    elastic = is_elastic(received)
    if elastic:
        refuse_pruning(received)
        kinds["model"] = UnprunedModelConfig
    parsed = {}
    for table, kind in kinds.items():
        values = received.get(table, {})
        if not isinstance(values, dict):
            raise ConfigError(
                f"`{table}` must be a table. Received: {table}={values!r}. Write "
                f"[{table}] on a line of its own, with its keys below."
            )
        _refuse_unknown(f"key in [{table}]", values, _keys(kind))
        parsed[table] = kind(**values)
    parsed["run"] = parsed["run"].with_defaults(output=f"runs/{name}")
    if parsed["model"].preset is not None:  # which is trained already
        parsed["budget"] = parsed["budget"].with_defaults(enlarge_steps=0)
        parsed["run"] = parsed["run"].with_defaults(compare_from_scratch=False)
    if elastic:
        begun = {"enlarge_steps": 0, "steps": parsed["budget"].planned_steps}
        parsed["budget"] = parsed["budget"].with_defaults(**begun)
        parsed["run"] = parsed["run"].with_defaults(compare_from_scratch=False)
    return RunConfig(**parsed)


def _keys(kind: type[Table]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _refuse_unknown(what: str, received: Iterable[str], known: Collection[str]) -> None:
    for name in received:
        if name in known:
            continue
        kinds = typing.get_type_hints(RunConfig)
        homes = [table for table, kind in kinds.items() if name in _keys(kind)]
        hint = did_you_mean(name, known)
        if homes:
            hint = f" Move it under [{homes[0]}]."
        raise ConfigError(f"Unknown {what}: {name!r}.{hint} Valid: {', '.join(known)}.")
