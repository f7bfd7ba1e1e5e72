"""`keras-idea new`: a run file with the recommended settings, each with its reason."""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import keras

from keras_idea._lm.runs.config import RunConfig, parse_config
from keras_idea._lm.runs.models import source_of
from keras_idea._lm.runs.plan import plan
from keras_idea._settings import (
    AT_ONCE,
    LARGE,
    MIXED,
    REMATERIALIZE,
    Recommended,
    Setting,
    on_devices,
    recommended,
)
from keras_idea.errors import ConfigError

#: The tables of a file: key -> what it is set to.
_Tables: TypeAlias = dict[str, dict[str, Setting]]

# Batches of a validation: by default, and at least.
_MOST_BATCHES, _LEAST_BATCHES = 32, 4

_HEAD = """\
# {what}. Written by `keras-idea new`.
#
#     keras-idea plan {file}     # after a change
#     keras-idea train {file}    # the same command resumes it
#     keras-idea export {output} --hf FOLDER    # or --gguf FILE
#
# "measured": docs/settings.md says on which models. "estimate": nobody measured it. All
# other values are yours, or follow from others.
"""


def new(
    file: str | os.PathLike,
    tokens: int,
    preset: str | None = None,
    target: float | int | Mapping[Any, Any] | None = None,
    text: str | None = None,
) -> None:
    """Writes a run file with the settings of `ki.recommended`; prints its plan."""
    file = pathlib.Path(file)
    if os.path.lexists(file):
        raise ConfigError(
            f"{str(file)!r} exists already and is not replaced. Give another name."
        )
    begin = "" if preset is None else f"[model]\npreset = {json.dumps(preset)}\n"
    source = source_of(parse_config(begin, file.stem))
    model = source.outline(source.at_start)
    found = recommended(model, tokens, target, trained=preset is not None)
    tables = _tables(found, preset, text, file.stem)
    what = "A run from nothing" if preset is None else "A checkpoint made smaller"
    head = _HEAD.format(
        what=f"{what}, {found['tokens_per_parameter']:g} tokens per parameter",
        file=file,
        output=tables["run"]["output"].value,
    )
    content = head + "".join(_lines(tables))
    planned = plan(parse_config(content, file.stem))
    with open(file, "x", encoding="utf-8") as opened:
        opened.write(content)
    print(f"{planned}\n\nWrote {file}. Read it, then run: keras-idea train {file}")


def _tables(
    found: Recommended, preset: str | None, text: str | None, name: str
) -> _Tables:
    known = found.settings
    total, size, batch = (
        known[key] for key in ("total_steps", "tokens_per_step", "batch_size")
    )
    rest = total.value - known["begin_step"].value - known["prune_steps"].value
    model = {"hidden_dim": Setting(512, "the demo's, like the sizes that are left out")}
    source = Setting(["stdlib"], "Python's source code: name what your model reads")
    tables = {
        "model": {
            **(model if preset is None else {"preset": Setting(preset, "yours")}),
            **_target(known),
            **_of(known, "round_to", "sequence_length"),
        },
        "data": {
            "paths": source if text is None else Setting([text], "your text"),
            "batch_size": Setting(batch.value, f"{size.reason}; {batch.reason}"),
        },
        "budget": {
            "enlarge_steps": known["begin_step"],
            "prune_steps": known["prune_steps"],
            "recover_steps": Setting(rest, f"the rest: {total.reason}"),
        },
        "optimizer": _of(
            known, "peak_learning_rate", "end_learning_rate", "warmup_steps"
        ),
        "pruning": _of(known, "method", "by_weights", "refit_windows"),
        "run": {
            "output": Setting(f"runs/{name}", "the run folder"),
            "validate_every": known["steps_per_epoch"],
        },
    }
    if preset is not None:
        tables["distillation"] = {
            "teacher": Setting(preset, "the checkpoint itself"),
            **_of(known, "weight", "temperature", "top_k"),
        }
    fewer = max(_LEAST_BATCHES, found["steps_per_epoch"] // 2)
    if fewer < _MOST_BATCHES:
        why = "estimate: few, because a validation comes after few steps"
        tables["data"]["validation_batches"] = Setting(fewer, why)
    parts = found["tokens_per_step"] // AT_ONCE.value
    # A refit needs whole steps; so does TensorFlow, which rejects parts.
    whole = found.situation == "very few" or keras.backend.backend() == "tensorflow"
    if parts > 1 and not whole:
        cut = Setting(parts, AT_ONCE.reason)
        tables["optimizer"]["gradient_accumulation_steps"] = cut
    if found["parameters"] >= LARGE:
        tables["run"]["rematerialize"] = REMATERIALIZE
    if on_devices():
        tables["run"]["dtype"] = MIXED
    return tables


def _of(known: Mapping[str, Setting], *names: str) -> dict[str, Setting]:
    return {name: known[name] for name in names if name in known}


def _target(known: Mapping[str, Setting]) -> dict[str, Setting]:
    """How narrow, with what it comes to."""
    names = ("target_dim", "target_parameters", "targets")
    name = next(name for name in names if name in known)
    target = known[name]
    reason = f"{target.reason}; {known['kept'].reason}"
    if name == "targets":
        [units] = target.value.values()
        return {"target_dim": Setting(units, reason)}
    return {name: Setting(target.value, reason)}


def _lines(tables: _Tables) -> Iterator[str]:
    order = list(RunConfig.model_fields)
    for table in sorted(tables, key=order.index):
        keys = [f"{key} = {_toml(s.value)}" for key, s in tables[table].items()]
        width = max(map(len, keys))
        yield f"\n[{table}]\n"
        for key, known in zip(keys, tables[table].values(), strict=True):
            yield f"{key:{width}}  # {known.reason}\n"


def _toml(value: Any) -> str:
    # Strings, lists of them and booleans are written as in JSON.
    return repr(value) if isinstance(value, float) else json.dumps(value)
