"""`keras-idea new`: a run file with the recommended settings, each with its reason."""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import keras

from keras_idea.errors import ConfigError
from keras_idea.lm.runs.config import RunConfig, parse_config
from keras_idea.lm.runs.models import source_of
from keras_idea.lm.runs.plan import plan
from keras_idea.settings import rules
from keras_idea.settings.how_narrow import on_devices
from keras_idea.settings.recommended import Recommended, recommended
from keras_idea.settings.setting import Setting, given, setting

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
# "measured": a letter names the measurement, and docs/settings.md says of
# which models it is. "an estimate": nobody measured it. All other values are yours, or
# follow from others.
"""


def new(
    file: str | os.PathLike,
    tokens: int,
    preset: str | None = None,
    target: float | int | Mapping[Any, Any] | None = None,
    text: str | None = None,
) -> None:
    """Writes a run file with the settings of `keras_idea.recommended`; prints its plan.

    Args:
        file: path. Nothing may be there.
        tokens: int. How many the run trains on.
        preset: str or None. As `model.preset`. Defaults to None: this package's own
            decoder, from nothing.
        target: As of `recommended`.
        text: path or None. A file or folder. Defaults to None: Python's standard
            library.

    Raises:
        ArgumentError: As `recommended`.
        ConfigError: If the file exists, or the preset gives no model.
    """
    file = pathlib.Path(file)
    if os.path.lexists(file):
        raise ConfigError(
            f"{str(file)!r} exists already and is not replaced. Give another name."
        )
    source = run_file(file, tokens, preset, target, text)
    planned = plan(parse_config(source, file.stem))
    with open(file, "x", encoding="utf-8") as opened:
        opened.write(source)
    print(f"{planned}\n\nWrote {file}. Read it, then run: keras-idea train {file}")


def run_file(
    file: pathlib.Path,
    tokens: int,
    preset: str | None,
    target: Any,
    text: str | None,
) -> str:
    """The TOML text of `new`."""
    begin = "" if preset is None else f"[model]\npreset = {json.dumps(preset)}\n"
    source = source_of(parse_config(begin, file.stem))
    model = source.outline(source.at_start)
    found = recommended(model, tokens, target, trained=preset is not None)
    tables = _tables(found, tokens, preset, text, file.stem)
    what = "A run from nothing" if preset is None else "A checkpoint made smaller"
    head = _HEAD.format(
        what=f"{what}, {found['tokens_per_parameter']:g} tokens per parameter",
        file=file,
        output=tables["run"]["output"].value,
    )
    return head + "".join(_lines(tables))


def _tables(
    found: Recommended, tokens: int, preset: str | None, text: str | None, name: str
) -> _Tables:
    known = found.settings
    total = known["total_steps"]
    rest = total.value - known["begin_step"].value - known["prune_steps"].value
    size, batch = known["tokens_per_step"], known["batch_size"]
    reason = f"{size.reason}; {batch.reason}"
    batches = {
        "batch_size": Setting(batch.value, size.basis, reason),
        **_validation_batches(found),
    }
    tables = {
        "model": {
            **_model(preset),
            **_target(known),
            **_of(known, "round_to", "sequence_length"),
        },
        "budget": {
            "enlarge_steps": known["begin_step"],
            "prune_steps": known["prune_steps"],
            "recover_steps": given(rest, f"the rest: {total.reason}"),
        },
        "optimizer": _of(
            known, "peak_learning_rate", "end_learning_rate", "warmup_steps"
        ),
        "pruning": _of(known, "method", "by_weights", "refit_windows"),
        "run": {
            "output": given(f"runs/{name}", "the run folder"),
            "validate_every": known["steps_per_epoch"],
        },
    }
    tables["data"] = {**_text(text), **batches}
    if preset is not None:
        tables["distillation"] = {
            "teacher": given(preset, "the checkpoint itself"),
            **_of(known, "weight", "temperature", "features", "top_k"),
        }
    _save_memory(tables, found)
    return tables


def _of(known: Mapping[str, Setting], *names: str) -> dict[str, Setting]:
    return {name: known[name] for name in names if name in known}


def _model(preset: str | None) -> dict[str, Setting]:
    if preset is not None:
        return {"preset": given(preset, "the checkpoint")}
    return {"hidden_dim": given(512, "the demo's; so are the sizes that are left out")}


def _target(known: Mapping[str, Setting]) -> dict[str, Setting]:
    """How narrow, with what it comes to."""
    names = ("target_dim", "target_parameters", "targets")
    name = next(name for name in names if name in known)
    target = known[name]
    reason = f"{target.reason}; {known['kept'].reason}"
    if name == "targets":
        [units] = target.value.values()
        return {"target_dim": Setting(units, target.basis, reason)}
    return {name: Setting(target.value, target.basis, reason)}


def _text(text: str | None) -> dict[str, Setting]:
    if text is None:
        why = "Python's source text: name what your model will read"
        return {"paths": given(["stdlib"], why)}
    return {"paths": given([text], "your text")}


def _validation_batches(found: Recommended) -> dict[str, Setting]:
    fewer = max(_LEAST_BATCHES, found["steps_per_epoch"] // 2)
    if fewer >= _MOST_BATCHES:
        return {}
    why = "few, because a validation comes after few steps"
    return {"validation_batches": Setting(fewer, "an estimate", why)}


def _save_memory(tables: _Tables, found: Recommended) -> None:
    parts = found["tokens_per_step"] // rules.AT_ONCE.value
    # A refit needs whole steps; so does TensorFlow, which refuses parts.
    whole = found.situation == "very few" or keras.backend.backend() == "tensorflow"
    if parts > 1 and not whole:
        cut = setting(rules.AT_ONCE, parts)
        tables["optimizer"]["gradient_accumulation_steps"] = cut
    if found["parameters"] >= rules.LARGE:
        tables["run"]["rematerialize"] = setting(rules.REMATERIALIZE)
    if on_devices():
        tables["run"]["dtype"] = setting(rules.MIXED)


def _lines(tables: _Tables) -> Iterator[str]:
    order = list(RunConfig.model_fields)
    for table in sorted(tables, key=order.index):
        keys = [f"{key} = {_toml(s.value)}" for key, s in tables[table].items()]
        width = max(map(len, keys))
        yield f"\n[{table}]\n"
        for key, known in zip(keys, tables[table].values(), strict=True):
            basis = "" if known.basis == "given" else f"{known.basis}: "
            yield f"{key:{width}}  # {basis}{known.reason}\n"


def _toml(value: Any) -> str:
    # Strings, lists of them and booleans are written as in JSON.
    return repr(value) if isinstance(value, float) else json.dumps(value)
