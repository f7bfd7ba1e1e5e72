"""One preset that holds several widths: a record beside it, and slices of its model.

The neurons of its FFNs are sorted, so that a narrower model is the first ones of each.
KerasHub reads the preset as the full model, and the record not at all.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_idea.errors import LoadRefused
from keras_idea.hub.families import is_task
from keras_idea.hub.ffn import HubFFN, known_ffns
from keras_idea.hub.rebuild import rebuild_backbone, rebuild_task
from keras_idea.validation import did_you_mean

#: The file beside a preset's own: a JSON object, name -> neurons of each FFN.
RECORD = "widths.json"
#: The name of the width at which all neurons compute.
FULL = "full"


def write_widths(folder: str | os.PathLike, widths: Mapping[str, int]) -> None:
    """Writes the record of a folder: name -> neurons of each FFN, `FULL` among them."""
    text = json.dumps(dict(widths), indent=2) + "\n"
    (pathlib.Path(folder) / RECORD).write_text(text, encoding="utf-8")


def read_widths(folder: str | os.PathLike) -> dict[str, int]:
    """The record of a folder.

    Raises:
        LoadRefused: if there is none, or it is damaged.
    """
    path = pathlib.Path(folder) / RECORD
    if not path.is_file():
        raise LoadRefused(
            f"{str(folder)!r} holds one width alone: there is no {RECORD} in it. Leave "
            "the width out, or give the preset of a run with [elastic], or one that "
            "`keras_idea.export.export_preset(..., widths=...)` has written."
        )
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(record, dict) or not all(map(_is_count, record.values())):
        raise _damaged(path, "it is no object of names to whole numbers")
    most = record.get(FULL)
    if most is None or max(record.values()) > most:
        raise _damaged(path, f"it has no '{FULL}', or a width above it")
    return record


def neurons_in(record: Mapping[str, int], name: str) -> int:
    """The neurons of each FFN at a width of a record.

    Raises:
        LoadRefused: if there is no such width.
    """
    if name not in record:
        raise LoadRefused(
            f"There is no such width. Received: width={name!r}. It has: "
            f"{', '.join(record)}.{did_you_mean(name, list(record))}"
        )
    return record[name]


def check_record(record: Mapping[str, int], hidden_dims: list[int]) -> None:
    """Refuses a record that is not that of a model with FFNs of these widths."""
    other = [width for width in hidden_dims if width != record[FULL]]
    if other or not hidden_dims:
        raise LoadRefused(
            f"{RECORD} is of another model: '{FULL}' is {record[FULL]} neurons in each "
            f"FFN there, and the model has {other[0] if other else 'no FFN'}. Restore "
            "the folder from a copy."
        )


def at_width(model: keras.Model, folder: str | os.PathLike, name: str) -> keras.Model:
    """The model of a preset at a width of its record.

    A new stock model of the same classes, of the first neurons of each FFN, as
    `keras_idea.sliced` makes it, but neither compiled nor compared.

    Args:
        model: a KerasHub task or backbone, loaded from the preset.
        folder: path of the preset.
        name: str. `FULL` gives the model itself.

    Raises:
        LoadRefused: if the folder has no record or no such width, or the record is of
            another model.
    """
    record = read_widths(folder)
    neurons = neurons_in(record, name)
    backbone: Any = model.backbone if is_task(model) else model
    ffns = known_ffns(backbone)
    check_record(record, [ffn.hidden_dim for ffn in ffns])
    if name == FULL:
        return model
    narrow = _first_neurons(backbone, ffns, neurons)
    return rebuild_task(model, narrow) if is_task(model) else narrow


def _first_neurons(
    backbone: keras.Model, ffns: list[HubFFN], neurons: int
) -> keras.Model:
    widths = {ffn.width_argument: neurons * ffn.layout.per_neuron for ffn in ffns}
    narrow = rebuild_backbone(backbone, widths)
    cuts = {id(cut.variable): cut for ffn in ffns for cut in ffn.group.cuts()}
    for old, new in zip(backbone.variables, narrow.variables, strict=True):
        cut = cuts.get(id(old))
        new.assign(old.value if cut is None else cut.first(neurons))
    return narrow


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _damaged(path: pathlib.Path, reason: str) -> LoadRefused:
    return LoadRefused(
        f"{str(path)!r} is damaged: {reason}. Restore the folder from a copy."
    )
