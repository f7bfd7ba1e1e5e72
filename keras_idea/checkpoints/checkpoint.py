"""A run that is killed goes on from its last checkpoint."""

import functools
import json
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Protocol

import keras
import numpy as np

from keras_idea import processes
from keras_idea.checkpoints.arrays import SavedCheckpoint
from keras_idea.checkpoints.files import CheckpointFiles
from keras_idea.checkpoints.model_state import restore_state, state_arrays, state_facts
from keras_idea.checkpoints.randomness import random_state, set_random_state
from keras_idea.errors import CheckpointError
from keras_idea.keras_private.optimizer_variables import as_int
from keras_idea.validation import check_int


class Stateful(Protocol):
    """What a checkpoint can hold besides the model."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that is to be put back, by name."""

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Puts back what `get_state` returned."""


class Checkpoint(keras.callbacks.Callback):
    """Saves everything that a run needs to go on, at the end of epochs.

    Weights, optimizer (so the place in its schedule), scores, masks, widths, the
    state of a pruning method, the seeds of all random numbers, the logs of every
    epoch, and what `stateful` objects hold. At the end of epochs, because only there
    Keras's running means begin anew: a run that goes on from there equals one that
    was never stopped (bit for bit on a CPU, where it was tested). It stands last in
    the list, behind `IdeaPruneCallback`.

    Each checkpoint is written under a temporary name and renamed; its digests are
    verified before it is used, and a damaged one is passed over for the one before.
    If one cannot be written (a full disk), training goes on with a warning.

    Args:
        folder: path of the folder of the checkpoints; one for each run.
        every: int >= 1, epochs from one checkpoint to the next. The last of
            `fit`'s `epochs` always has one. Default 1.
        keep: int >= 1, how many of the last are kept. Default 3.
        stateful: dict of name to an object with `get_state()`, which returns a dict
            of name to NumPy array, and `set_state(state)`; None: none.
        identity: dict that JSON can hold: what must not change between the parts of
            a run, such as the seed and batch size of the data. Default None.

    Raises:
        ValueError: for an argument outside its range.

    Example:
    >>> checkpoint = Checkpoint("runs/mine/checkpoints", identity={"seed": 0})
    >>> epoch = checkpoint.restore(model)
    >>> epoch  # there is none yet
    0
    >>> _ = model.fit(data, epochs=2, initial_epoch=epoch,
    ...               callbacks=[prune, checkpoint], verbose=0)
    >>> checkpoint.restore(model)
    2
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        every: int = 1,
        keep: int = 3,
        stateful: Mapping[str, Stateful] | None = None,
        identity: dict | None = None,
    ) -> None:
        super().__init__()
        self.every = check_int("every", every, minimum=1)
        keep = check_int("keep", keep, minimum=1)
        self.stateful = dict(stateful or {})
        self.identity = {} if identity is None else identity
        #: dict of log name to list, an entry an epoch, of the whole run.
        self.history: dict[str, list[float]] = {}
        self._files = CheckpointFiles(folder, keep)
        # To be put back at the next batch.
        self._random_state: dict[str, np.ndarray] | None = None

    def restore(self, model: keras.Model) -> int:
        """Puts a model, and everything else, into the state of the last checkpoint.

        Args:
            model: a built Keras model, made and compiled as at the beginning of the
                run. It is narrowed if the saved one was.

        Returns:
            int, the epochs that are done: what `fit` takes as `initial_epoch`, and
            times the steps of an epoch the first batch. 0 if there is no checkpoint.

        Raises:
            CheckpointError: if the checkpoint is of another run or model, or if all
                checkpoints are damaged.
        """
        saved = self._files.newest()
        if saved is None:
            return 0
        _check_facts(saved)
        self._check_identity(saved)
        restore_model(saved, model)
        for name, holder in self.stateful.items():
            holder.set_state(_below(f"stateful/{name}/", saved))
        self.history = saved.facts["history"]
        self._random_state = _below("random/", saved)
        set_random_state(self._random_state)
        return saved.facts["epochs"]

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Puts the generators back to where they were when it was saved.

        In a run that goes straight on too: between two epochs Keras draws numbers
        (torch's loader does), at the beginning of a `fit` others.
        """
        if self._random_state is not None:
            set_random_state(self._random_state)
            self._random_state = None

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Keeps the logs, and saves if it is time."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        done = epoch + 1
        if done % self.every and done != self.params["epochs"]:
            return
        model = self.model  # on jax this syncs the variables
        self._random_state = state = random_state()
        arrays = state_arrays(model)
        if processes.is_first():
            arrays += self._further_arrays(state)
        facts = {
            "epochs": done,
            "identity": self.identity,
            "stateful": sorted(self.stateful),
            "history": self.history,
            "model": state_facts(model),
        }
        try:
            self._files.write(as_int(model.optimizer.iterations), arrays, facts)
        except OSError as error:
            warnings.warn(
                f"The checkpoint after epoch {done} could not be written ({error}). "
                "Training goes on; make room, or a killed run loses more than one "
                "interval.",
                stacklevel=2,
            )

    def _further_arrays(
        self, state: dict[str, np.ndarray]
    ) -> list[tuple[str, Callable[[], np.ndarray]]]:
        groups = {
            f"stateful/{name}": holder.get_state()
            for name, holder in self.stateful.items()
        }
        groups["random"] = state
        arrays = {
            f"{group}/{name}": array
            for group, named in groups.items()
            for name, array in named.items()
        }
        return [(name, functools.partial(np.asarray, a)) for name, a in arrays.items()]

    def _check_identity(self, saved: SavedCheckpoint) -> None:
        here = json.loads(json.dumps(self.identity))
        was = saved.facts["identity"]
        for name in [*was, *here]:
            if was.get(name) != here.get(name):
                raise CheckpointError(
                    f"The checkpoints in {str(saved.folder.parent)!r} are of another "
                    f"run: {name} was {was.get(name)!r} and is {here.get(name)!r}. Set "
                    "it back, or give another folder."
                )
        if saved.facts["stateful"] != sorted(self.stateful):
            raise CheckpointError(
                f"{saved.folder.name} holds the state of {saved.facts['stateful']}. "
                f"Received: stateful={sorted(self.stateful)}. Pass the same objects."
            )


def restore_model(saved: SavedCheckpoint, model: keras.Model) -> None:
    """Puts a model, with its optimizer, into a saved state.

    Args:
        saved: `SavedCheckpoint`.
        model: keras.Model, as of `Checkpoint.restore`.

    Raises:
        CheckpointError: if the checkpoint is of another model.
    """
    shapes = {
        name: saved.shape(name)
        for name in saved.names
        if name.startswith(("model/", "optimizer/"))
    }
    try:
        restore_state(model, saved.facts["model"], shapes, saved.array)
    except ValueError as error:
        raise CheckpointError(f"{saved.folder.name}: {error}") from error


def _check_facts(saved: SavedCheckpoint) -> None:
    """Refuses facts that no `Checkpoint` has written, by the first that is wrong."""
    facts = saved.facts
    kinds = {
        "epochs": int,
        "identity": dict,
        "stateful": list,
        "history": dict,
        "model": dict,
    }
    wrong = [name for name, kind in kinds.items() if type(facts.get(name)) is not kind]
    if not wrong and facts["epochs"] < 1:
        wrong = ["epochs"]
    if wrong:
        raise CheckpointError(
            f"{saved.folder.name}: its manifest says {wrong[0]!r}: "
            f"{facts.get(wrong[0])!r}, which no checkpoint says. Delete "
            f"{str(saved.folder)!r}; the run goes on from the checkpoint before."
        )


def _below(prefix: str, saved: SavedCheckpoint) -> dict[str, np.ndarray]:
    """The saved arrays whose names begin so, by the rest of their names."""
    names = [name for name in saved.names if name.startswith(prefix)]
    return {name.removeprefix(prefix): saved.array(name) for name in names}
