"""A callback that saves what a run needs to resume, at the end of whole epochs."""

import contextlib
import json
import os
import random
import shutil
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import keras
import numpy as np

from keras_idea import _processes as processes
from keras_idea._callbacks.checkpoint.state import (
    Saved,
    model_state,
    newest,
    restore_model,
    saved_names,
    write,
)
from keras_idea._files import TEMPORARY, check_folder
from keras_idea._keras.callbacks import (
    is_stopping,
    kind_of,
    memory,
    peers,
    remember,
    warn_user,
)
from keras_idea._keras.optimizer_variables import as_int
from keras_idea._keras.variables import global_seed
from keras_idea._validation import check_int, plural
from keras_idea.errors import ArgumentError, CheckpointError


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


class Stateful(Protocol):
    """An object whose state a checkpoint holds besides the model's."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Returns everything that is to be restored, by name."""

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restores what `get_state` returned."""


class Checkpoint(keras.callbacks.Callback):
    """Saves everything that a run needs to resume, at the end of whole epochs.

    Use it for runs that may be killed. A checkpoint holds the weights, the optimizer,
    scores, masks, widths, all random seeds, the logs of every epoch, what Keras's own
    callbacks remember (EarlyStopping, ReduceLROnPlateau, ModelCheckpoint,
    SwapEMAWeights), and what `stateful` objects hold. On a CPU, a resumed run equals
    one that was never stopped, bit for bit.

    Call `restore(model)` before every `fit`, and pass what it returns as
    `initial_epoch`. Put `Checkpoint` last in `callbacks`. Only complete epochs are
    saved, and only if the loss and the weights are finite. Give each stage of a run its
    own folder.

    Args:
        folder: path. The folder of the checkpoints, one per run.
        every: int >= 1. Epochs between two checkpoints. The last epoch of a `fit` has
            one too. Defaults to 1.
        keep: int >= 1. How many of the last checkpoints are kept. Defaults to 3.
        stateful: dict or None. Maps names to objects with `get_state()`, which returns
            a dict of name to NumPy array, and `set_state(state)`. Defaults to None.
        identity: dict or None. What must not change when a run resumes, such as a seed,
            as JSON can hold it. Defaults to None.

    Raises:
        ValueError: If an argument is outside its range or `folder` cannot be made. When
            `fit` begins: if a callback that the checkpoint must save comes after it.
        CheckpointError: If the folder holds checkpoints that were not restored.
        OSError: If a checkpoint cannot be written. The earlier ones stay.

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
        self.folder = check_folder("folder", folder)
        self.every = check_int("every", every, minimum=1)
        self.keep = check_int("keep", keep, minimum=1)
        self.stateful = dict(stateful or {})
        try:
            self.identity = json.loads(json.dumps(dict(identity or {})))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"`identity` must be a dict for JSON: {error}"
            ) from None
        #: dict, name of a log -> list of one number per epoch, of the whole run.
        self.history: dict[str, list[float]] = {}
        # The names of the checkpoints that this object has written or restored.
        self._known: set[str] = set()
        # To be compared, or restored, when the next `fit` begins.
        self._done: int | None = None
        self._saved: Saved | None = None
        self._random: dict[str, np.ndarray] | None = None
        self._batches, self._stopped = 0, False

    def restore(self, model: keras.Model) -> int:
        """Restores a model, and everything else, to the state of the last checkpoint.

        Args:
            model: keras.Model. It must be built, and made and compiled as at the
                beginning of the run. It is narrowed if the saved one was.

        Returns:
            int, the number of epochs done; pass it to `fit` as `initial_epoch`. 0 if
            there is no checkpoint.

        Raises:
            CheckpointError: If the checkpoint is of another run or model, or if all
                checkpoints are damaged.
        """
        saved = newest(self.folder)
        if saved is None:
            return 0
        try:
            return self._restore(saved, model)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(
                f"{saved.path.name} cannot be restored: {error!r}. Delete it to resume "
                "from the one before."
            ) from error

    def _restore(self, saved: Saved, model: keras.Model) -> int:
        facts, now = saved.facts, self._run_facts()
        for name, value in now.items():
            if facts[name] != value:
                raise CheckpointError(
                    f"The checkpoints in {str(self.folder)!r} are of another run: "
                    f"{name} was {facts[name]} and is {value}. Set it back, or use "
                    "another folder."
                )
        restore_model(model, saved)
        for name, holder in self.stateful.items():
            holder.set_state(saved.arrays(f"stateful/{name}/"))
        self.history = facts["history"]
        self._random = saved.arrays("random/")
        set_random_state(self._random)
        self._known, self._saved = set(saved_names(self.folder)), saved
        self._done = facts["epochs"]
        return facts["epochs"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Restores what Keras's callbacks remembered; rejects a foreign folder."""
        companions = self._companions()
        processes.from_first(self._check_folder)
        if self._saved is not None:
            _remind(companions, self._saved)
            self._saved = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Restores the generators: a loader draws the order of batches from them."""
        if self._done is not None and epoch != self._done:
            warn_user(
                f"`restore` returned {plural(self._done, 'epoch')}, and `fit` begins "
                f"at epoch {epoch}. Pass initial_epoch={self._done}."
            )
        self._done, self._batches, self._stopped = None, 0, False
        if self._random is not None:
            set_random_state(self._random)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Restores the generators again, before the first batch.

        A loader that serves all epochs draws once, when it is made. In a resumed run
        that is now, and in a run that was not stopped it was long ago.
        """
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Notes the batch, and whether `fit` ends after it."""
        self._batches, self._stopped = batch + 1, is_stopping(self)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Keeps the logs, and saves if it is time."""
        model = self.model  # on jax this syncs the variables
        params, logs = self.params or {}, logs or {}
        steps = params.get("steps")
        cut_off = self._batches < steps if steps else self._stopped
        if model.stop_training and cut_off:
            warn_user(
                "`fit` stopped inside an epoch, which is not saved. Call `restore` to "
                "resume from the last saved epoch."
            )
            return
        for name, value in logs.items():
            with contextlib.suppress(TypeError, ValueError):  # text of another callback
                number = float(value)
                self.history.setdefault(name, []).append(number)
        done = epoch + 1
        ends = done == params.get("epochs") or model.stop_training
        if not ends and done % self.every:
            return
        if not _is_finite(model, logs):
            warn_user(
                "The loss of an epoch, or the weights after it, are not finite, so it "
                "is not saved. Lower the learning rate, and call `restore`."
            )
            return
        self._save(model, done)

    def _save(self, model: keras.Model, done: int) -> None:
        self._random = random_state()
        model_facts, arrays = model_state(model)
        further = {f"random/{name}": a for name, a in self._random.items()}
        for name, holder in self.stateful.items():
            state = holder.get_state()
            further |= {f"stateful/{name}/{key}": state[key] for key in state}
        memories = []
        for i, (label, callback) in enumerate(self._companions()):
            state = memory(callback)
            weights: Any = state.pop("best_weights", None) or []
            further |= {f"callbacks/{i}/{j:05d}": a for j, a in enumerate(weights)}
            memories.append([label, {n: _as_json(state[n]) for n in state}])
        facts = {
            "epochs": done,
            "step": as_int(model.optimizer.iterations),
            "history": self.history,
            "callbacks": memories,
            "model": model_facts,
            **self._run_facts(),
        }
        arrays |= {name: np.asarray(a, order="C") for name, a in further.items()}

        def save() -> str:
            self._check_folder()
            return write(self.folder, arrays, facts, self.keep)

        self._known.add(processes.from_first(save))

    def _run_facts(self) -> dict[str, Any]:
        """What must be the same when a run resumes."""
        return {"identity": self.identity, "stateful": sorted(self.stateful)}

    def _check_folder(self) -> None:
        """Rejects another run's folder; removes unfinished files."""
        foreign = [n for n in saved_names(self.folder) if n not in self._known]
        if foreign:
            raise CheckpointError(
                f"The folder {str(self.folder)!r} holds checkpoints that this "
                "`Checkpoint` has neither written nor restored. Call `restore(model)` "
                "before `fit`, or use another folder."
            )
        for path in self.folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _companions(self) -> list[tuple[str, keras.callbacks.Callback]]:
        """The callbacks of Keras whose memory is saved, each with its kind."""
        found, behind, stateful = [], False, set(map(id, self.stateful.values()))
        for peer in peers(self):
            kind = kind_of(peer)
            if isinstance(peer, keras.callbacks.BackupAndRestore):
                raise ArgumentError(
                    "`Checkpoint` and BackupAndRestore would both restore the model. "
                    "Leave BackupAndRestore out."
                )
            if behind and (kind or id(peer) in stateful):
                raise ArgumentError(
                    f"`Checkpoint` saves the state of {type(peer).__name__}, which "
                    "comes after it in `callbacks`. Put `Checkpoint` last."
                )
            if kind:
                # The best of one metric is nothing to another.
                monitor = getattr(peer, "monitor", None)
                found.append((f"{kind} of {monitor}" if monitor else kind, peer))
            behind = behind or peer is self
        return found


def _is_finite(model: keras.Model, logs: Mapping[str, Any]) -> bool:
    """Whether an epoch's loss is finite, and what its last step has made."""
    return bool(np.all(np.isfinite(logs.get("loss", 0.0)))) and all(
        bool(keras.ops.all(keras.ops.isfinite(variable)))
        for variable in model.trainable_variables
    )


def _remind(
    companions: list[tuple[str, keras.callbacks.Callback]], saved: Saved
) -> None:
    """Gives Keras's callbacks what they remembered, after they began anew."""
    was = [label for label, _ in saved.facts["callbacks"]]
    here = [label for label, _ in companions]
    if was != here:
        warn_user(
            f"The checkpoint holds the state of the callbacks {was}, and `fit` has "
            f"{here}, so they begin again. Pass the same callbacks."
        )
        return
    for i, (_, callback) in enumerate(companions):
        weights = list(saved.arrays(f"callbacks/{i}/").values()) or None
        state = saved.facts["callbacks"][i][1]
        remember(callback, {**state, "best_weights": weights, "stopped_epoch": 0})


def _as_json(value: Any) -> Any:
    """None, a bool or an int as it is; any other number as a float."""
    if value is None or isinstance(value, (bool, int)):
        return value
    return float(keras.ops.convert_to_numpy(value))
