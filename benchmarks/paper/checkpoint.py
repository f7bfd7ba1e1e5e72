"""What one stage hands to the next: the library's own state, in memory or in files."""

import dataclasses
import functools
import pathlib

import keras
import numpy as np

from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.callbacks.checkpoint.model_state import (
    restore_state,
    state_arrays,
    state_facts,
)
from keras_idea.errors import ArgumentError
from keras_idea.surgery import find_ffns


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model and its optimizer at the end of a stage, with what led there.

    Attributes:
        arrays: dict of name to array, as `state_arrays` names them.
        facts: dict that JSON can hold: `model`, as `state_facts` says; `weights`, the
            names of the weights without the pruning state, in their order;
            `iterations`, updates done; `width`, neurons of an FFN, physically;
            `record`: loss curve, FLOPs, seconds.
    """

    arrays: dict[str, np.ndarray]
    facts: dict

    @property
    def iterations(self) -> int:
        """Updates that the optimizer has done."""
        return self.facts["iterations"]

    @property
    def width(self) -> int:
        """Neurons of an FFN, physically."""
        return self.facts["width"]

    @property
    def record(self) -> dict:
        """What is known of the run up to here."""
        return self.facts["record"]

    @property
    def weights(self) -> list[np.ndarray]:
        """The weights without the pruning state, in the model's order."""
        return [self.arrays[name] for name in self.facts["weights"]]

    def restore(self, model: keras.Model) -> None:
        """Puts a model, compiled as it was, and its optimizer into this state."""
        shapes = {name: array.shape for name, array in self.arrays.items()}
        restore_state(model, self.facts["model"], shapes, self.arrays.__getitem__)

    def give_weights(self, model: keras.Model) -> None:
        """Gives a decoder the weights alone, prunable or not; scores start anew."""
        variables, weights = _weights(model), self.weights
        here, kept = ([tuple(x.shape) for x in xs] for xs in (variables, weights))
        if here != kept:
            raise ArgumentError(
                f"The checkpoint has arrays of the shapes {kept} for weights {here}. "
                "Delete the folder `prefixes` of the output folder; it is made again."
            )
        for variable, array in zip(variables, weights, strict=True):
            variable.assign(array)

    def save(self, folder: pathlib.Path) -> None:
        """Writes it, whole or not at all, as the only checkpoint of a folder."""
        arrays = [
            (name, functools.partial(self.arrays.__getitem__, name))
            for name in self.arrays
        ]
        CheckpointFiles(folder, keep=1).write(self.iterations, arrays, self.facts)


def take_checkpoint(model: keras.Model, width: int, record: dict) -> Checkpoint:
    """Copies a compiled decoder (not the `Distiller` around it) and its optimizer."""
    arrays = {name: read() for name, read in state_arrays(model)}
    plain = set(map(id, _weights(model)))
    of_model = zip(arrays, model.variables, strict=False)  # the optimizer's follow
    facts = {
        "model": state_facts(model),
        "weights": [name for name, variable in of_model if id(variable) in plain],
        "iterations": int(model.optimizer.iterations),
        "width": width,
        "record": record,
    }
    return Checkpoint(arrays, facts)


def load_checkpoint(folder: pathlib.Path) -> Checkpoint | None:
    """Reads what `Checkpoint.save` wrote; None: there is none.

    Raises:
        CheckpointError: if it is damaged.
    """
    saved = CheckpointFiles(folder).newest()
    if saved is None:
        return None
    return Checkpoint({name: saved.array(name) for name in saved.names}, saved.facts)


def _weights(model):
    """The variables that a plain decoder has too."""
    states = {id(v) for ffn in find_ffns(model) for v in ffn.state.variables}
    return [v for v in model.variables if id(v) not in states]
