"""Saves what a run needs to resume, at the end of whole epochs.

A checkpoint is one safetensors file: the variables of the model and of its optimizer,
and in its header, as JSON, the facts that are not arrays. It is complete or absent: it
is written under a temporary name, flushed to the disk, and renamed.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea import _processes as processes
from keras_idea._files import TEMPORARY, check_folder, replacing
from keras_idea._finding.find import find_groups
from keras_idea._graph.configs import warn_of_stuck
from keras_idea._graph.group import FFN
from keras_idea._keras.callbacks import (
    is_stopping,
    kind_of,
    memory,
    peers,
    remember,
    warn_user,
)
from keras_idea._keras.layers import student_of
from keras_idea._keras.optimizer_variables import as_int, innermost, parts
from keras_idea._keras.variables import global_seed
from keras_idea._step.pruner import end_pruning, own_variables, pruner_of
from keras_idea._step.replicas import scope_of
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea._validation import check_int, plural
from keras_idea.errors import ArgumentError, CheckpointError
from keras_idea.methods.learned_mask import MaskLearner

# The entry of the header that holds the facts.
_FACTS = "keras_idea"
# The first number only rises: the newest file is the last one written.
_NAME = re.compile(r"checkpoint-(\d+)-step-\d+\.safetensors")
# Arrays that no variable of the model or its optimizer holds.
_BESIDE = ("callbacks", "learned", "random", "stateful")


class Checkpoint(keras.callbacks.Callback):
    """Saves everything that a run needs to resume, at the end of whole epochs.

    A checkpoint holds the weights, the optimizer, scores, masks, widths, all random
    seeds, the logs of every epoch, what Keras's own callbacks remember, and what
    `stateful` objects hold. On a CPU, a resumed run equals one that was never stopped,
    bit for bit.

    Call `restore(model)` before every `fit`, and pass what it returns as
    `initial_epoch`. Put `Checkpoint` last in `callbacks`. Only complete epochs are
    saved, and only if the loss and the weights are finite. Give each stage of a run its
    own folder.

    Args:
        folder: path. The folder of the checkpoints, one per run.
        every: int >= 1. Epochs between two checkpoints. The last epoch of a `fit` has
            one too. Defaults to 1.
        keep: int >= 1. How many checkpoints are kept, the last ones. Defaults to 3.
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
        stateful: Mapping[str, Any] | None = None,
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
            raise ArgumentError("`identity` must be a dict for JSON.") from error
        #: dict, name of a log -> list of one number per epoch, of the whole run.
        self.history: dict[str, list[float]] = {}
        # The names of the checkpoints that this object has written or restored.
        self._known: set[str] = set()
        # To be compared, or restored, when the next `fit` begins.
        self._done: int | None = None
        self._saved: Saved | None = None
        self._random: dict[str, np.ndarray] | None = None
        self._begun, self._stopped = 0, False

    def restore(self, model: keras.Model) -> int:
        """Restores a model, and everything else, to the state of the last checkpoint.

        Args:
            model: keras.Model. Built, and compiled as at the beginning of the run. It
                is narrowed if the saved one was.

        Returns:
            int, the epochs done: the `initial_epoch` of `fit`. 0: no checkpoint.

        Raises:
            CheckpointError: If the checkpoint is of another run or model, or damaged.
        """
        self._saved = saved = newest(self.folder)
        if saved is None:
            return 0
        facts = saved.facts
        for name, value in self._same(model).items():
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
        self._known, self._done = set(saved_names(self.folder)), facts["epochs"]
        return facts["epochs"]

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Restores what Keras's callbacks remembered; rejects a foreign folder."""
        companions = self._companions()
        processes.from_first(self._check_folder)
        saved, self._saved = self._saved, None
        if saved is None:
            return
        before, now = saved.facts["callbacks"], [label for label, _ in companions]
        if before != now:
            warn_user(
                f"The checkpoint holds the state of the callbacks {before}, and `fit` "
                f"has {now}, so they begin again. Pass the same callbacks."
            )
            return
        for i, (_, callback) in enumerate(companions):
            remember(callback, saved.arrays(f"callbacks/{i}/"))

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Restores the generators: a loader draws the order of batches from them."""
        if self._done is not None and epoch != self._done:
            warn_user(
                f"`restore` returned {plural(self._done, 'epoch')}, and `fit` begins "
                f"at epoch {epoch}. Pass initial_epoch={self._done}."
            )
        self._done, self._begun, self._stopped = None, 0, False
        if self._random is not None:
            set_random_state(self._random)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Notes the batch. Restores the generators: a loader drew when `fit` began."""
        self._begun = batch
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Notes whether `fit` ends. Keras may call it from threads, in any order."""
        if is_stopping(self):
            self._stopped = True

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Keeps the logs, and saves if it is time."""
        model = self.model  # on jax this syncs the variables
        params, logs = self.params or {}, logs or {}
        steps = params.get("steps")
        batches = self._begun + model.steps_per_execution
        cut_off = batches < steps if steps else self._stopped
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
        finite = keras.ops.isfinite
        if not np.all(np.isfinite(logs.get("loss", 0.0))) or not all(
            keras.ops.all(finite(variable)) for variable in model.trainable_variables
        ):
            warn_user(
                "The loss of an epoch, or the weights after it, are not finite, so it "
                "is not saved. Lower the learning rate, and call `restore`."
            )
            return
        self._save(model, done)

    def _same(self, model: keras.Model) -> dict[str, Any]:
        """What must be the same when a run resumes."""
        optimizer = getattr(model, "optimizer", None)
        found = [] if optimizer is None else parts(optimizer)
        return {
            "identity": self.identity,
            "stateful": sorted(self.stateful),
            "optimizer": [type(part).__name__ for part in found],
            "gradient_accumulation_steps": [
                part.gradient_accumulation_steps or 1 for part in found
            ],
        }

    def _save(self, model: keras.Model, done: int) -> None:
        self._random = random_state()
        widths, arrays = model_state(model)
        further = {"random": self._random}
        for name, holder in self.stateful.items():
            further[f"stateful/{name}"] = holder.get_state()
        companions = self._companions()
        for i, (_, callback) in enumerate(companions):
            further[f"callbacks/{i}"] = memory(callback)
        for place, found in further.items():
            for name, array in found.items():
                arrays[f"{place}/{name}"] = np.asarray(array, order="C")
        facts = {
            "epochs": done,
            "step": as_int(model.optimizer.iterations),
            "history": self.history,
            "callbacks": [label for label, _ in companions],
            "widths": widths,
            **self._same(model),
        }

        def save() -> str:
            self._check_folder()
            return write(self.folder, arrays, facts, self.keep)

        self._known.add(processes.from_first(save))

    def _check_folder(self) -> None:
        """Rejects another run's folder; removes unfinished files."""
        if not self._known.issuperset(saved_names(self.folder)):
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


def random_state() -> dict[str, np.ndarray]:
    """The state of Python's, NumPy's, Keras's and torch's global generators.

    Layers have generators of their own; but dropout on torch draws from torch's.
    """
    # First: making it, where nothing has yet, draws from Python's.
    state = {"keras": np.asarray(keras.ops.convert_to_numpy(global_seed().value))}
    kind, words, *position = np.random.get_state()
    of_numpy = [kind, np.asarray(words).tolist(), *position]
    host = json.dumps([random.getstate(), of_numpy])
    state["host"] = np.frombuffer(host.encode(), "uint8")
    for i, generator in enumerate(_torch_generators()):
        state[f"torch_{i}"] = generator.get_state().numpy()
    return state


def set_random_state(state: Mapping[str, np.ndarray]) -> None:
    """Puts the generators back to a `random_state`, of any backend."""
    global_seed().assign(state["keras"])
    (version, words, gauss), of_numpy = json.loads(state["host"].tobytes())
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(of_numpy)
    for i, generator in enumerate(_torch_generators()):
        if f"torch_{i}" in state:
            saved = keras.ops.convert_to_tensor(state[f"torch_{i}"], "uint8")
            generator.set_state(saved.cpu())


def _torch_generators() -> list[Any]:
    """Torch's generators: of the CPU and of each GPU; none on other backends."""
    if keras.backend.backend() != "torch":
        return []
    import torch

    return [torch.default_generator, *torch.cuda.default_generators]


class Saved:
    """One checkpoint file, open for reading.

    Attributes:
        path: Path.
        facts: dict, as `write` was given it.
        shapes: dict, name of an array -> its shape.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        try:
            self._file = safe_open(path, "np")
            self.facts: dict[str, Any] = json.loads(self._file.metadata()[_FACTS])
            names = self._file.keys()
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path.name} is not a complete checkpoint ({error}). Delete it to "
                "resume from the one before."
            ) from error
        self.shapes = {n: tuple(self._file.get_slice(n).get_shape()) for n in names}

    def array(self, name: str) -> np.ndarray:
        """Reads one array."""
        return self._file.get_tensor(name)

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Reads the arrays whose names begin so, by the rest of their names."""
        names = sorted(name for name in self.shapes if name.startswith(prefix))
        return {name.removeprefix(prefix): self.array(name) for name in names}


def saved_names(folder: pathlib.Path) -> list[str]:
    """Lists the names of the checkpoints in a folder, oldest first."""
    found = [match for p in folder.glob("*") if (match := _NAME.fullmatch(p.name))]
    return [match[0] for match in sorted(found, key=lambda match: int(match[1]))]


def newest(folder: pathlib.Path) -> Saved | None:
    """Opens the last checkpoint of a folder; None if there is none."""
    names = processes.from_first(lambda: saved_names(folder))
    return Saved(folder / names[-1]) if names else None


def write(
    folder: pathlib.Path,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    keep: int,
) -> str:
    """Writes a checkpoint and removes the oldest that are too many; returns its name.

    Raises:
        OSError: If it cannot be written. The earlier checkpoints stay.
    """
    number = max((int(n.split("-")[1]) for n in saved_names(folder)), default=0) + 1
    name = f"checkpoint-{number:06d}-step-{facts['step']:08d}.safetensors"
    header = {_FACTS: json.dumps(facts)}
    with replacing(folder / name) as temporary:
        try:
            save_file(arrays, temporary, header)
        except SafetensorError as error:
            raise OSError(str(error)) from error
    for old in saved_names(folder)[:-keep]:
        (folder / old).unlink()
    return name


def model_state(model: keras.Model) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the widths and the arrays that put a model into its present state.

    Of several processes all must call it, and the first gets the arrays.
    """
    groups = {n: g for n, g in _groups(model).items() if g.held_state is not None}
    for group in groups.values():
        group.update_state()
    arrays = {}
    for name, variable in _variables(model, groups).items():
        array = processes.gathered(variable.value)
        if processes.is_first():
            array = keras.ops.convert_to_numpy(array)
            arrays[name] = np.asarray(array, order="C")
    widths = {name: [g.full_dim, g.hidden_dim] for name, g in groups.items()}
    return widths, arrays


def restore_model(model: keras.Model, saved: Saved) -> None:
    """Narrows a model as the saved one was, and gives all variables their values.

    Raises:
        CheckpointError: If it is another model. It may already be narrower then, but
            its values are unchanged.
    """
    if not student_of(model).variables:
        raise CheckpointError(
            f"Model '{model.name}' is not built. Call it once before `restore`."
        )
    optimizer = getattr(model, "optimizer", None)
    every = _groups(model)
    end_pruning(model, every.values())  # of a `fit` that an exception has ended
    widths = saved.facts["widths"]
    groups = {name: every[name] for name in widths if name in every}
    # Whichever units: what they hold is read below.
    kept = [
        (group, np.broadcast_to(np.arange(width), (*group.units_shape[:-1], width)))
        for name, group in groups.items()
        if (width := widths[name][1]) < group.hidden_dim
    ]
    warn_of_stuck(narrow_whole(model, kept))
    if optimizer is not None and not optimizer.built:
        with scope_of(model):
            optimizer.build(model.trainable_variables)
    variables = _variables(model, groups)
    _check_shapes(variables, saved)
    for name, variable in variables.items():
        variable.assign(saved.array(name))
    for name, group in groups.items():
        group.state.full_dim = widths[name][0]
    learned = list(saved.arrays("learned/").values())
    if learned:
        step = as_int(innermost(optimizer).iterations)
        MaskLearner.restored[innermost(optimizer)] = step, learned


def _groups(model: keras.Model) -> dict[str, FFN]:
    """All groups of units, by kind and place among those of the kind."""
    return {f"{group.kind}/{group.place:05d}": group for group in find_groups(model)}


def _variables(
    model: keras.Model, groups: Mapping[str, FFN]
) -> dict[str, keras.Variable]:
    """Every variable to save, by a name that does not depend on the process."""
    optimizer = getattr(model, "optimizer", None)
    pruner = pruner_of(optimizer)
    learner = None if pruner is None else pruner.learner
    # A kernel whose mask is being learned holds a draw of it, times its weights.
    whole = {} if learner is None else {k: w for k, (_, w) in learner.weights.items()}
    # Not the teacher's: it is not trained, and may be the larger one.
    variables = student_of(model).variables
    named = {
        f"model/{i:05d}/{v.name}": whole.get(id(v), v) for i, v in enumerate(variables)
    }
    known = set(map(id, variables))
    for name, group in groups.items():
        for variable in group.state.variables:
            if id(variable) not in known:
                named[f"{name}/{variable.name}"] = variable
    if learner is not None:
        named |= {f"learned/{i:05d}": v for i, v in enumerate(learner.learned)}
    if optimizer is not None and optimizer.built:
        own = enumerate(own_variables(optimizer))
        named |= {f"optimizer/{place:05d}": variable for place, variable in own}
    return named


def _check_shapes(variables: Mapping[str, keras.Variable], saved: Saved) -> None:
    here = {name: tuple(variable.shape) for name, variable in variables.items()}
    there = {n: s for n, s in saved.shapes.items() if not n.startswith(_BESIDE)}
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            raise CheckpointError(
                f"{saved.path.name} is of another model: '{name}' has the shape "
                f"{there.get(name)} there and {here.get(name)} here (None: no such "
                "variable). Make and compile the model as it was."
            )
