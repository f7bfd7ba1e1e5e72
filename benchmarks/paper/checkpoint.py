"""What one stage hands to the next, in memory and in a file."""

import dataclasses
import json
import os
import zipfile
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError

_SCORES = "neuron_state"
_META, _WEIGHT, _SLOT = "meta", "weight:", "slot:"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model and its optimizer at the end of a stage, with what led there.

    Attributes:
        weights: dict of variable path to array: weights, scores, masks.
        slots: tuple of arrays, the optimizer's variables in their order; the
            first is its iterations.
        record: dict that JSON can hold: loss curve, FLOPs, tokens, seconds.
    """

    weights: dict
    slots: tuple
    record: dict

    @property
    def iterations(self):
        """int, updates that the optimizer has done."""
        return int(self.slots[0])

    @property
    def width(self):
        """int, neurons of an FFN, physically."""
        name = next(name for name in self.weights if name.endswith("up_kernel"))
        return self.weights[name].shape[-1]


def take_checkpoint(model, optimizer, record):
    """Copies a model and its optimizer.

    Args:
        model: the decoder (not the `Distiller` around it).
        optimizer: its built optimizer.
        record: dict.

    Returns:
        `Checkpoint`.
    """
    weights = {v.path: _array(v) for v in model.variables}
    assert len(weights) == len(model.variables), "two variables of one path"
    return Checkpoint(weights, tuple(_array(v) for v in optimizer.variables), record)


def restore_weights(model, checkpoint, scores=True):
    """Gives a model the weights of a checkpoint.

    Args:
        model: a built decoder of the same shape. Plain FFNs ignore scores.
        checkpoint: `Checkpoint`.
        scores: bool, whether the scores of its neurons come along; else they
            start anew.

    Raises:
        ValueError: if a variable is missing, or of another shape.
    """
    for variable in model.variables:
        if not scores and _SCORES in variable.path:
            continue
        value = checkpoint.weights.get(variable.path)
        _check(variable, value)
        variable.assign(value)


def restore_optimizer(optimizer, model, checkpoint):
    """Gives an optimizer the state of a checkpoint.

    Args:
        optimizer: a new optimizer of the same class; it is built here.
        model: the decoder that it trains.
        checkpoint: `Checkpoint`.

    Raises:
        ValueError: if its variables are others.
    """
    optimizer.build(model.trainable_variables)
    if len(optimizer.variables) != len(checkpoint.slots):
        raise ArgumentError(
            f"The checkpoint holds {len(checkpoint.slots)} variables of the optimizer, "
            f"but {type(optimizer).__name__} has {len(optimizer.variables)}. Delete "
            "the folder `prefixes` of the output folder; it is made again."
        )
    for variable, value in zip(optimizer.variables, checkpoint.slots, strict=True):
        _check(variable, value)
        variable.assign(value)


def save_checkpoint(path, checkpoint):
    """Writes a checkpoint as npz, whole or not at all.

    Args:
        path: Path of the file.
        checkpoint: `Checkpoint`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        f"{_WEIGHT}{name}": value for name, value in checkpoint.weights.items()
    }
    arrays |= {f"{_SLOT}{i:06d}": value for i, value in enumerate(checkpoint.slots)}
    arrays[_META] = np.frombuffer(json.dumps(checkpoint.record).encode(), "uint8")
    temporary = path.with_suffix(f".tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_checkpoint(path):
    """Reads what `save_checkpoint` wrote.

    Args:
        path: Path of the file.

    Returns:
        `Checkpoint`.

    Raises:
        ValueError: if the file is damaged, or holds Python objects, which could run
            code.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = arrays.files
            weights = {
                name.removeprefix(_WEIGHT): arrays[name]
                for name in names
                if name.startswith(_WEIGHT)
            }
            slots = [arrays[name] for name in sorted(names) if name.startswith(_SLOT)]
            record = json.loads(arrays[_META].tobytes())
    # A file that is no zip is an array, or a pickle, to NumPy.
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ArgumentError(
            f"The checkpoint {str(path)!r} is damaged ({error}). Delete it; it is made "
            "again."
        ) from error
    if any(name.endswith("/ticks") for name in weights):
        raise ArgumentError(
            f"The checkpoint {str(path)!r} is of an earlier version, whose scores were "
            "kept otherwise. Delete it; it is made again."
        )
    return Checkpoint(weights, tuple(slots), record)


def _array(variable):
    return np.array(keras.ops.convert_to_numpy(variable.value))


def _check(variable, value):
    if value is None or tuple(value.shape) != tuple(variable.shape):
        found = "nothing" if value is None else f"an array {tuple(value.shape)}"
        raise ArgumentError(
            f"The checkpoint has {found} for the variable {variable.path} "
            f"{tuple(variable.shape)}. Delete the folder `prefixes` of the output "
            "folder; it is made again."
        )
