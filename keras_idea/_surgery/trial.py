"""Tries a cut on an example, before the first step: masked must equal narrow.

What was found about the units is tested on the model itself, in two forward passes. In
the first, half of the units of each group are zeros; in the second they are cut out. No
variable changes: values are replaced in a `keras.StatelessScope`.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea import _processes as processes
from keras_idea._graph.configs import Stuck, as_if, set_configs
from keras_idea._graph.follow import OPEN_SIZE
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import CHANNELS, KindName
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import (
    called_parts,
    student_of,
    walk,
)
from keras_idea._signals import held_back
from keras_idea._typing import Tensor
from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import example_arrays, outputs_of, tolerance_of

#: A group, and the ascending indices of the units that it keeps.
Cuts: TypeAlias = Sequence[tuple[FFN, np.ndarray]]

# A variable of smaller numbers, such as a bias at first, would hide an error.
_SMALL = 1e-3
#: Kinds whose masked units change the others (a mean over all): exact only when cut.
_EXACT_WHEN_CUT: frozenset[KindName] = frozenset()


def try_groups(model: keras.layers.Layer, groups: Sequence[FFN]) -> None:
    """Tries to cut half of the active units out of groups; see `try_cuts`."""
    rng = np.random.default_rng(0)
    try_cuts(model, [(group, _half(group, rng)) for group in groups])


def _half(group: FFN, rng: np.random.Generator) -> np.ndarray:
    """Half of the active units, drawn: a regular half could hide a wrong order."""
    kept, parts = group.kept_neurons(), group.device_parts
    width = kept.shape[-1]
    count = max(1, width // (2 * parts)) * parts
    return kept[..., np.sort(rng.permutation(width)[:count])]


@held_back()  # because the model says for a moment that it is narrower
def try_cuts(model: keras.layers.Layer, cuts: Cuts) -> None:
    """Compares a model of masked units with one in which they are cut out.

    In a model without `call`, each model in it is tried. Warns if there is no example
    on which the model can be called. Does nothing if several processes train.

    Args:
        model: keras.layers.Layer. Built and in sync. It is left as it was.
        cuts: list of (group, ascending indices of the units that stay).

    Raises:
        ArgumentError: If the two differ, or if the narrow model raises. It names one
            group.
    """
    cuts = [
        (group, kept)
        for group, kept in cuts
        if kept.shape[-1] < group.hidden_dim and group.kind not in _EXACT_WHEN_CUT
    ]
    if processes.count() > 1:
        return
    for part in called_parts(student_of(model)):
        inside = set(map(id, walk(part)))
        theirs = [
            (group, kept)
            for group, kept in cuts
            if inside.issuperset(map(id, group.layers))
        ]
        if theirs:
            _try(part, theirs)


def _try(part: keras.layers.Layer, cuts: Cuts) -> None:
    """As `try_cuts`, of a part of a model that can be called."""
    try:
        trial = _Trial(part, size_for([group for group, _ in cuts]))
        failure = trial.failure(cuts)
    except Exception as error:  # of the masked model: out of memory, for one
        warn_user(
            f"Pruning of '{part.name}' was not tested on an example: "
            f"{what_was_raised(error)}. Compare the outputs of the narrow model with "
            "those of the masked one on your data."
        )
        return
    if failure is None:
        return
    guilty = failure.among(cuts)
    while len(guilty) > 1 and not failure.stuck:
        half = len(guilty) // 2
        first = trial.failure(guilty[:half])
        if first is not None and first.stuck:
            break  # their config holds one number for all of them
        guilty = guilty[:half] if first else guilty[half:]
    names = [group.name for group, _ in guilty]
    others = f" and {len(names) - 1} more groups" if len(names) > 1 else ""
    raise ArgumentError(
        f"The {guilty[0][0].units} of {names[0]}{others} cannot be pruned: without "
        f"half of them, {failure.why}. Leave them out: groups=lambda ffn: ffn.name not "
        f"in {names}."
    )


class _Failure(NamedTuple):
    """Why a narrow model fails, and the layers whose configs cannot follow."""

    why: str
    stuck: Sequence[keras.layers.Layer] = ()

    def among(self, cuts: Cuts) -> Cuts:
        """The groups in those layers, or all."""
        inside = {id(part) for layer in self.stuck for part in walk(layer)}
        theirs = [each for each in cuts if inside & set(map(id, each[0].layers))]
        return theirs or cuts


class _Trial:
    """One model on one example."""

    def __init__(self, model: keras.layers.Layer, size: int) -> None:
        self._model, self._inputs = model, example_arrays(model, size)
        if self._inputs is None:
            raise ArgumentError("the shapes or types of its inputs are not known")
        rng = np.random.default_rng(0)
        self._values: dict[int, Tensor] = {}  # torch keeps no graph of them
        for variable in model.variables:
            value = ops.stop_gradient(variable.value)
            if variable.trainable and keras.backend.is_float_dtype(variable.dtype):
                if float(ops.max(ops.abs(value))) < _SMALL:
                    value = ops.cast(0.05 * rng.normal(size=value.shape), value.dtype)
            self._values[id(variable)] = value

    def failure(self, cuts: Cuts) -> _Failure | None:
        """What is wrong with the narrow model; None: it equals the masked one."""
        masked, tolerance = self._outputs(self._masked(cuts)), tolerance_of(self._model)
        if not _has_numbers(masked):
            if _has_numbers(self._outputs(self._values)):
                return _Failure("none of its outputs is finite")
            raise ArgumentError("its outputs are not finite")
        values, stuck = dict(self._values), list[Stuck]()
        units = [(group.hidden_dim, kept.shape[-1]) for group, kept in cuts]
        try:
            with contextlib.ExitStack() as undo:
                changed = undo.enter_context(as_if(cuts, values))
                stuck = set_configs(self._model, changed, units, undo)
                found = self._outputs(values)
        except Exception as error:
            raised = f"the model raises {what_was_raised(error)}"
            if stuck:
                layer, why = stuck[0]
                raised += f". The config of {layer.name!r} {why}"
            return _Failure(raised, [layer for layer, _ in stuck])
        if _same(masked, found, tolerance):
            return None
        if not _same(masked, self._outputs(self._masked(cuts)), tolerance):
            raise ArgumentError("its outputs are random")
        return _Failure(
            "the model computes something else than with zeros in their place. Its "
            "code reads them elsewhere, or computes with their number"
        )

    def _masked(self, cuts: Cuts) -> dict[int, Tensor]:
        values = dict(self._values)
        for group, kept in cuts:
            mask = np.zeros(group.units_shape, "float32")
            np.put_along_axis(mask, kept, 1.0, axis=-1)
            for cut in group.cuts():
                value = values[id(cut.variable)]
                stays = cut.spread(ops.convert_to_tensor(mask), 1) > 0
                values[id(cut.variable)] = ops.where(stays, value, 0)
        return values

    def _outputs(self, values: dict[int, Tensor]) -> list[np.ndarray]:
        state = [(variable, values[id(variable)]) for variable in self._model.variables]
        return outputs_of(self._model, self._inputs, state)


def _has_numbers(outputs: list[np.ndarray]) -> bool:
    return any(np.isfinite(made).any() for made in outputs[:-1])  # but for the loss


def _same(some: list[np.ndarray], others: list[np.ndarray], tolerance: float) -> bool:
    """Whether outputs are equal but for another order of sums."""
    finite = [np.abs(array[np.isfinite(array)]).max(initial=0.0) for array in some]
    return len(some) == len(others) and all(
        one.shape == other.shape
        and np.allclose(one, other, 0, tolerance * size, equal_nan=True)
        for one, other, size in zip(some, others, finite, strict=True)
    )


def size_for(groups: Sequence[FFN]) -> int:
    """The size of an example's open axes: convolutions need more than 8 places."""
    return OPEN_SIZE if any(group.kind == CHANNELS for group in groups) else 8
