"""What one checkpoint holds, and the file that it is.

A checkpoint is one safetensors file. It holds the variables of the model and of its
optimizer, and in its header, as JSON, the facts that are not arrays. It is complete or
absent: it is written under a temporary name, flushed to the disk, and renamed.
"""

import json
import pathlib
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea import _processes as processes
from keras_idea._files import replacing
from keras_idea._finding.find import FFN, find_groups
from keras_idea._graph.configs import warn_of_stuck
from keras_idea._keras.layers import is_built, student_of
from keras_idea._keras.optimizer_variables import as_int, innermost, parts
from keras_idea._step.pruner import end_pruning, own_variables, pruner_of
from keras_idea._step.replicas import scope_of
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea.errors import CheckpointError
from keras_idea.methods.learned_mask import MaskLearner

# The entry of the header that holds the facts.
_FACTS = "keras_idea"
# The first number only rises: the newest file is the last one written.
_NAME = re.compile(r"checkpoint-(\d+)-step-\d+\.safetensors")


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
                f"{path.name} is not a complete checkpoint ({error}). Delete it."
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
    """Opens the last checkpoint of a folder; None if there is none.

    Raises:
        CheckpointError: If there are checkpoints, and all are damaged.
    """

    def find() -> str | None:
        names = saved_names(folder)
        for name in reversed(names):
            try:
                Saved(folder / name)
                return name
            except CheckpointError as error:
                warnings.warn(f"{error} The one before is used.", stacklevel=2)
        if names:
            raise CheckpointError(
                f"All checkpoints in {str(folder)!r} are damaged. Restore one from a "
                "copy, or delete the folder to begin again."
            )
        return None

    name = processes.from_first(find)
    return None if name is None else Saved(folder / name)


def write(
    folder: pathlib.Path,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    keep: int,
) -> str:
    """Writes a checkpoint and removes the oldest that are too many; returns its name.

    Raises:
        OSError: If it cannot be written. The earlier checkpoints stay.
    """
    numbers = [int(old.split("-")[1]) for old in saved_names(folder)]
    number = max(numbers, default=0) + 1
    name = f"checkpoint-{number:06d}-step-{facts['step']:08d}.safetensors"
    with replacing(folder / name) as temporary:
        try:
            save_file(dict(arrays), temporary, {_FACTS: json.dumps(facts)})
        except SafetensorError as error:
            raise OSError(str(error)) from error
    for old in saved_names(folder)[:-keep]:
        (folder / old).unlink()
    return name


def model_state(
    model: keras.Model,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the facts and the arrays that put a model back into its present state.

    Of several processes all must call it, and the first gets the arrays. In `fit` on
    jax the model must be in sync.
    """
    groups = {key: g for key, g in _groups(model).items() if g.held_state is not None}
    for group in groups.values():
        group.update_state()
    facts = {
        "optimizer": _optimizer_facts(model),
        "groups": [
            {
                "kind": kind,
                "place": place,
                "full_dim": group.full_dim,
                "hidden_dim": group.hidden_dim,
            }
            for (kind, place), group in groups.items()
        ],
    }
    arrays = {}
    for name, variable in _variables(model, groups).items():
        array = processes.gathered(variable.value)
        if processes.is_first():
            array = keras.ops.convert_to_numpy(array)
            arrays[name] = np.asarray(array, order="C")
    return facts, arrays


def restore_model(model: keras.Model, saved: Saved) -> None:
    """Narrows a model as the saved one was, and gives all variables their values.

    Raises:
        CheckpointError: If it is another model. It may already be narrower then, but
            its values are unchanged.
    """
    student, optimizer = student_of(model), getattr(model, "optimizer", None)
    if not is_built(student) or not student.variables:
        raise CheckpointError(
            f"Model '{model.name}' has no variables yet. Build it, or call it once, "
            "before a checkpoint is restored."
        )
    facts, now = saved.facts["model"], _optimizer_facts(model)
    if facts["optimizer"] != now:
        raise CheckpointError(
            f"{saved.path.name}: the optimizer's class and gradient_accumulation_steps "
            f"were {facts['optimizer']} and are {now}. Compile the model as it was."
        )
    every = _groups(model)
    end_pruning(model, every.values())  # of a `fit` that an exception has ended
    groups = _saved_groups(saved, facts["groups"], every)
    widths = [
        (every[key], one["hidden_dim"])
        for key, one in groups.items()
        if one["hidden_dim"] < every[key].hidden_dim
    ]
    # Whichever units: what they hold is read below.
    warn_of_stuck(narrow_whole(model, [(g, _first(g, width)) for g, width in widths]))
    if optimizer is not None and not optimizer.built:
        with scope_of(model):
            optimizer.build(model.trainable_variables)
    variables = _variables(model, {key: every[key] for key in groups})
    _check_shapes(variables, saved)
    for name, variable in variables.items():
        variable.assign(saved.array(name))
    for key, one in groups.items():
        every[key].state.full_dim = one["full_dim"]
    learned = list(saved.arrays("learned/").values())
    if learned:
        step = as_int(innermost(optimizer).iterations)
        MaskLearner.restored[innermost(optimizer)] = step, learned


def _groups(model: keras.Model) -> dict[tuple[str, int], FFN]:
    """All groups of units, by kind and place among those of the kind."""
    groups: dict[tuple[str, int], FFN] = {}
    for group in find_groups(model):
        place = sum(kind == group.kind for kind, _ in groups)
        groups[group.kind, place] = group
    return groups


def _saved_groups(
    saved: Saved, facts: Sequence[dict[str, Any]], every: Mapping[tuple[str, int], FFN]
) -> dict[tuple[str, int], dict[str, Any]]:
    groups = {(one["kind"], one["place"]): one for one in facts}
    for key, one in groups.items():
        width = one["hidden_dim"]
        if key not in every or not 1 <= width <= every[key].hidden_dim:
            found = [g.hidden_dim for (kind, _), g in every.items() if kind == key[0]]
            raise CheckpointError(
                f"{saved.path.name}: group {key[1]} of the {key[0]} has {width}, and "
                f"the model's groups have {found}. Make the model as it was."
            )
    return groups


def _first(group: FFN, width: int) -> np.ndarray:
    return np.broadcast_to(np.arange(width), (*group.units_shape[:-1], width))


def _variables(
    model: keras.Model, groups: Mapping[tuple[str, int], FFN]
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
    for (kind, place), group in groups.items():
        for variable in group.state.variables_of_neurons:
            if id(variable) not in known:
                named[f"{kind}/{place:05d}/{variable.name}"] = variable
    if learner is not None:
        named |= {f"learned/{i:05d}": v for i, v in enumerate(learner.learned)}
    if optimizer is not None and optimizer.built:
        own = enumerate(own_variables(optimizer))
        named |= {f"optimizer/{place:05d}": variable for place, variable in own}
    return named


def _optimizer_facts(model: keras.Model) -> list[list[Any]]:
    """The class of the optimizer and of each that it wraps, and the batches of a step.

    Keras counts batches: with another accumulation the same count is another step.
    """
    optimizer = getattr(model, "optimizer", None)
    return [
        [type(part).__name__, part.gradient_accumulation_steps or 1]
        for part in ([] if optimizer is None else parts(optimizer))
    ]


def _check_shapes(variables: Mapping[str, keras.Variable], saved: Saved) -> None:
    here = {name: tuple(variable.shape) for name, variable in variables.items()}
    kinds = {name.partition("/")[0] for name in here}
    there = {n: s for n, s in saved.shapes.items() if n.partition("/")[0] in kinds}
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            raise CheckpointError(
                f"{saved.path.name} is of another model: '{name}' has the shape "
                f"{there.get(name)} there and {here.get(name)} here (None: no such "
                "variable). Make and compile the model as it was."
            )
