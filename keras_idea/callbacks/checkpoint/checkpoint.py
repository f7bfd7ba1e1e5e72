"""A killed run resumes from its last checkpoint."""

import contextlib
import functools
import json
import os
import random
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import keras
import numpy as np

from keras_idea import processes
from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.callbacks.checkpoint.keras_callbacks import (
    check_order,
    memories,
    put_back,
)
from keras_idea.callbacks.checkpoint.model_state import (
    state_arrays,
    state_facts,
)
from keras_idea.callbacks.checkpoint.restoring import (
    arrays_below,
    check_facts,
    check_identity,
    check_same_run,
    check_stateful,
    restore_model,
)
from keras_idea.errors import CheckpointError
from keras_idea.files import check_folder
from keras_idea.keras_private.callbacks import (
    begin_with,
    fit_under_way,
    initial_epoch,
    is_stopping,
    warn_user,
)
from keras_idea.keras_private.optimizer_variables import as_int
from keras_idea.keras_private.variables import global_seed
from keras_idea.validation import check_int, plural


def random_state() -> dict[str, np.ndarray]:
    """The state of Python's, NumPy's, Keras's and torch's global generators.

    Layers that draw numbers have generators of their own, which are variables of the
    model; but for dropout on torch, which draws from torch's.
    """
    # First: making it, where nothing has yet, draws from Python's.
    seed = global_seed()
    kind, words, *position = np.random.get_state()
    host = json.dumps([random.getstate(), [kind, *position]])
    state = {
        "keras": np.asarray(keras.ops.convert_to_numpy(seed.value)),
        "numpy": np.asarray(words),
        "host": np.frombuffer(host.encode(), "uint8"),
    }
    if keras.backend.backend() == "torch":
        # Not imported: the package names no backend, and Keras has loaded this one.
        torch = sys.modules["torch"]
        state["torch"] = torch.get_rng_state().numpy()
        for i, device in enumerate(torch.cuda.get_rng_state_all()):
            state[f"torch_cuda_{i}"] = device.numpy()
    return state


def set_random_state(state: Mapping[str, np.ndarray]) -> None:
    """Puts the generators back to a `random_state`, of any backend."""
    global_seed().assign(state["keras"])
    (version, words, gauss), (kind, *position) = json.loads(state["host"].tobytes())
    np.random.set_state((kind, state["numpy"], *position))
    random.setstate((version, tuple(words), gauss))
    if keras.backend.backend() == "torch" and "torch" in state:
        torch = sys.modules["torch"]
        torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
        for i in range(torch.cuda.device_count()):
            if f"torch_cuda_{i}" in state:
                device = torch.from_numpy(state[f"torch_cuda_{i}"].copy())
                torch.cuda.set_rng_state(device, i)


def _is_finite(model: keras.Model, logs: Mapping[str, float]) -> bool:
    """Whether an epoch's loss is finite, and what its last step has made."""
    return bool(np.all(np.isfinite(logs.get("loss", 0.0)))) and all(
        bool(keras.ops.all(keras.ops.isfinite(variable)))
        for variable in model.trainable_variables
    )


class Stateful(Protocol):
    """What a checkpoint can hold besides the model."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that is to be put back, by name."""

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Puts back what `get_state` returned."""


class Checkpoint(keras.callbacks.Callback):
    """Saves everything that a run needs to resume, at the end of whole epochs.

    Use it for runs that may be killed. It saves weights, the optimizer (with its
    learning rate and its place in a schedule), scores, masks, widths, and the state of
    a pruning method. It also saves the seeds of all random numbers, the logs of every
    epoch, and what `stateful` objects hold. Keras's own callbacks resume with what they
    remember (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint, SwapEMAWeights). A
    resumed run equals one that was never stopped: bit for bit on a CPU, where it was
    tested. It must be last in `callbacks`.

    If memory runs out, resume with half the batch and twice
    `gradient_accumulation_steps`: the optimizer step stays the same. Where it would
    not, `restore` raises an error.

    An epoch is not saved if `fit` stops inside it, or if its loss or the weights are
    not finite: a warning says so, and the run resumes from the last saved epoch.

    Call `restore(model)` before `fit`, in every run. A folder with checkpoints that
    were not restored raises an error when `fit` begins. The next `fit` begins at the
    restored epoch, with a warning if its `initial_epoch` is lower. (If the model was
    compiled again, it begins a new stage.) Later calls of `fit` with the same object
    add to the same folder, but `restore` returns the epochs of the last one only. Give
    each stage of a run its own `Checkpoint` and folder.

    A checkpoint that cannot be written stops the run with an `OSError`. The earlier
    checkpoints stay intact.

    Args:
        folder: path. The folder of the checkpoints, one per run. A relative path
            counts from the working directory at this call.
        every: int >= 1. Epochs between two checkpoints. The last whole epoch of a
            `fit` has one too. Defaults to 1.
        keep: int >= 1. How many of the last checkpoints are kept. Defaults to 3.
        stateful: dict or None. Maps names to objects with `get_state()`, which returns
            a dict of name to NumPy array, and `set_state(state)`. Pass callbacks of
            your own that remember something. Defaults to None.
        identity: dict or None. What must not change when a run resumes, such as the
            seed and batch size of the data. JSON must be able to hold it. Defaults to
            None.

    Raises:
        ValueError: If an argument is outside its range, or if a folder cannot be made.
            When `fit` begins: if the callbacks are in the wrong order.
        CheckpointError: When `fit` begins or later, if the folder holds checkpoints of
            another run.
        OSError: If a checkpoint cannot be written.

    Example:
    >>> checkpoint = Checkpoint("runs/mine/checkpoints", identity={"seed": 0})
    >>> epoch = checkpoint.restore(model)
    >>> epoch  # there is none yet
    0
    >>> _ = model.fit(data, epochs=2, initial_epoch=epoch,
    ...               callbacks=[prune, checkpoint], verbose=0)
    >>> checkpoint.restore(model)
    2

    Notes:
        Keras resets its running means at the end of an epoch, so a run can resume
        exactly only there. Each checkpoint is written under a temporary name and
        renamed. Its digests are verified before it is used. If one is damaged, the one
        before it is used, with a warning.
    """

    # Nothing that runs at the end of a batch touches the model: Keras need not wait.
    async_safe = True

    def __init__(
        self,
        folder: str | os.PathLike,
        every: int = 1,
        keep: int = 3,
        stateful: Mapping[str, Stateful] | None = None,
        identity: dict | None = None,
    ) -> None:
        super().__init__()
        folder = check_folder("folder", folder)
        self.every = check_int("every", every, minimum=1)
        keep = check_int("keep", keep, minimum=1)
        self.stateful = check_stateful({} if stateful is None else stateful)
        self.identity = check_identity({} if identity is None else identity)
        #: dict of log name to list, a number an epoch, of the whole run.
        self.history: dict[str, list[float]] = {}
        self._files = CheckpointFiles(folder, keep)
        # The names of checkpoints that this object has written or restored.
        self._known_names: set[str] = set()
        # The epochs that were restored, and for which optimizer, until `fit` begins.
        self._done: tuple[int, Any] = (0, None)
        # The batches of the epoch so far, and whether `fit` ended after one of them.
        self._batches, self._stopped = 0, False
        # To be put back when `fit` begins, and at the next batch.
        self._companions: tuple[list[dict], dict[str, np.ndarray]] | None = None
        self._random_state: dict[str, np.ndarray] | None = None

    def restore(self, model: keras.Model) -> int:
        """Restores a model, and everything else, to the state of the last checkpoint.

        Args:
            model: keras.Model. It must be built, and made and compiled as at the
                beginning of the run. It is narrowed if the saved one was.

        Returns:
            int, the number of epochs done; pass it to `fit` as `initial_epoch`.
            Multiplied by the steps per epoch, it gives the first batch. 0 if there is
            no checkpoint.

        Raises:
            CheckpointError: If the checkpoint is of another run or model, or if all
                checkpoints are damaged.
        """
        names = self._files.names()
        saved = self._files.newest()
        if saved is None:
            return 0
        check_facts(saved)
        check_same_run(saved, self.identity, self.stateful)
        restore_model(saved, model)
        for name, holder in self.stateful.items():
            holder.set_state(arrays_below(f"stateful/{name}/", saved))
        self.history = saved.facts["history"]
        self._companions = saved.facts["callbacks"], arrays_below("callbacks/", saved)
        self._random_state = arrays_below("random/", saved)
        set_random_state(self._random_state)
        self._known_names = set(names)
        self._done = saved.facts["epochs"], model.optimizer
        return saved.facts["epochs"]

    @property
    def _epochs(self) -> int | None:
        """The last epoch's number; None in the user's own `CallbackList`."""
        return (self.params or {}).get("epochs")

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Rejects what could only fail later; gives Keras's callbacks their state."""
        # Not when the first epoch begins: see `initial_epoch` in keras_private.
        check_order(self, self.stateful.values())
        self._check_folder()
        processes.from_first(self._files.prepare)
        (done, optimizer), self._done = self._done, (0, None)
        if optimizer is not self.model.optimizer:
            done = 0  # compiled since: the stage that begins is a new one
        if fit_under_way() and initial_epoch() < done:
            warn_user(
                f"The restored run has {plural(done, 'epoch')} done, so this `fit` "
                f"continues after them. Received: initial_epoch={initial_epoch()}. "
                "Pass what `restore` returned as `initial_epoch`."
            )
            begin_with(self.model, done)
        if self._companions is not None:
            put_back(self, *self._companions)
            self._companions = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Puts the generators back: a loader draws the order of batches from them."""
        begin_with(self.model, None)  # an error may end this `fit`, and not the next
        self._batches, self._stopped = 0, False
        if self._random_state is not None:
            set_random_state(self._random_state)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Puts the generators back to where they were when it was saved.

        In a run that goes straight on too: between two epochs Keras draws numbers
        (torch's loader does), at the beginning of a `fit` others.
        """
        self._batches = batch + 1
        if self._random_state is not None:
            set_random_state(self._random_state)
            self._random_state = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Notes whether `fit` ends after this batch."""
        if is_stopping(self):
            self._stopped = True

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Keeps the logs, and saves if it is time."""
        model = self.model  # on jax this syncs the variables
        if self._is_cut_off(model):
            warn_user(
                "`fit` stopped inside an epoch, which is not saved. Call `restore` to "
                "resume from the last whole epoch that was saved."
            )
            return
        for name, value in (logs or {}).items():
            with contextlib.suppress(TypeError, ValueError):  # text of another callback
                number = float(value)
                self.history.setdefault(name, []).append(number)
        done = epoch + 1
        ends = done == self._epochs or model.stop_training
        if not ends and done % self.every:
            return
        if not _is_finite(model, logs or {}):
            warn_user(
                "The loss of an epoch, or the weights after it, are not finite, so it "
                "is not saved. Lower the learning rate, and call `restore` to resume "
                "from the last checkpoint."
            )
            return
        self._save(model, done)

    def _is_cut_off(self, model: keras.Model) -> bool:
        """Whether `fit` stopped before the last batch of the epoch."""
        steps = (self.params or {}).get("steps")
        if not steps:  # nobody knows which batch is the last
            return self._stopped
        done = self._batches - 1 + model.steps_per_execution
        return model.stop_training and done < steps

    def on_train_end(self, logs: dict | None = None) -> None:
        """Leaves the model as `fit` found it."""
        if self.model is not None:
            begin_with(self.model, None)

    def _save(self, model: keras.Model, done: int) -> None:
        self._check_folder()
        self._random_state = state = random_state()
        callbacks, weights = memories(self)
        further = {}
        if processes.is_first():
            further = self._further_arrays(state, weights)
        facts = {
            "epochs": done,
            "identity": self.identity,
            "stateful": sorted(self.stateful),
            "history": self.history,
            "callbacks": callbacks,
            "model": state_facts(model),
        }
        arrays = state_arrays(model)
        arrays += [(n, functools.partial(np.asarray, a)) for n, a in further.items()]
        step = as_int(model.optimizer.iterations)
        self._known_names.add(self._files.write(step, arrays, facts))

    def _check_folder(self) -> None:
        """Rejects a folder that another run has written to, or writes to now."""

        def check() -> None:
            files = self._files
            foreign = [name for name in files.names() if name not in self._known_names]
            if foreign:
                raise CheckpointError(
                    "The folder holds checkpoints that this `Checkpoint` has neither "
                    f"written nor restored. Received: folder={str(files.folder)!r}, "
                    f"with {foreign[-1]}. Call `restore(model)` before `fit` to "
                    "resume that run; or use another folder, or delete this one."
                )

        processes.from_first(check)

    def _further_arrays(
        self, state: dict[str, np.ndarray], weights: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        groups = {
            f"stateful/{name}": holder.get_state()
            for name, holder in self.stateful.items()
        }
        groups.update(callbacks=weights, random=state)
        return {
            f"{group}/{name}": np.asarray(array)
            for group, named in groups.items()
            for name, array in named.items()
        }
