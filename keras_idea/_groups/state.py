"""The pruning state of one FFN: scores, mask and the numbers of its neurons.

Shapes: F = hidden_dim (neurons), D = input_dim. A state of E experts has all of `(F,)`
for each of them: `(E, F)`.

The state is a report: it changes nothing that a layer computes. Pruned neurons are
neurons whose weights are zero. A prunable FFN holds its state among its variables; for
any other layer it is kept here, outside of the model.

While a pruner is at work (`keras_idea._step.pruner`), newer scores and a newer mask
are among the optimizer's variables, as moments are, because the optimizer's step is
where they change. `scores` and `mask` are then these variables. `publish` brings the
state's own up to date: when the pruner ends, and before something is saved.
"""

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._groups.cut import Cut
from keras_idea._keras.layers import renew_weight
from keras_idea._typing import Tensor
from keras_idea._validation import check_choice, check_number
from keras_idea.errors import ArgumentError
from keras_idea.functional.importance import REDUCTIONS, Reduction


@dataclasses.dataclass(frozen=True)
class Scoring:
    """How scores become the importance of neurons: lambda, f1 and f2 of Algorithm 1.

    Args:
        ema_decay: float in [0, 1). The weight of the past in the moving average of the
            scores. Defaults to 0.4.
        row_reduce: str. "mean" or "max", f1: over the weights of a neuron in one
            kernel, where a score is one per weight. Defaults to "mean".
        matrix_reduce: str. "mean" or "max", f2: over the kernels. Defaults to "max".

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> ki.methods.Scoring(ema_decay=0.9).matrix_reduce
    'max'

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    ema_decay: float = 0.4
    row_reduce: Reduction = "mean"
    matrix_reduce: Reduction = "max"

    def __post_init__(self) -> None:
        check_number("ema_decay", self.ema_decay, 0.0, 1.0, exclude_maximum=True)
        check_choice("row_reduce", self.row_reduce, list(REDUCTIONS))
        check_choice("matrix_reduce", self.matrix_reduce, list(REDUCTIONS))


@dataclasses.dataclass(eq=False)
class Live:
    """What an optimizer holds of one FFN's state while a pruner is at work.

    Attributes:
        scores: variable, the newest scores.
        mask: variable, the newest mask.
        pruner: weak reference to the pruner, because it holds the FFN's layer: no
            layer that can be reached from its state would ever be freed.
    """

    scores: keras.Variable
    mask: keras.Variable
    pruner: weakref.ref


@keras.saving.register_keras_serializable(package="keras_idea")
class NeuronState(keras.layers.Layer):
    """Scores and mask of the neurons of one FFN.

    It is a layer only so that Keras tracks, saves and places its variables; it is
    never called.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name, dtype="float32")
        #: `Scoring`, how the scores are made: as the last pruning run has it.
        self.scoring = Scoring()
        #: int, the neurons it had at first, before any narrowing; None: nobody knows,
        #: a file of a stock layer may be of one that was wider once.
        self.full_dim: int | None = None
        #: None, or the newest scores and mask while a pruner is at work.
        self.active_track: Live | None = None
        #: None, or the neurons that are to be left, as the last pruning run has it.
        self.target_dim: int | None = None
        #: bool, whether a unit has one score a kernel, however scores are reduced.
        self.by_unit = False
        #: Weights of a neuron in each kernel at first, where they may become fewer.
        self.row_lengths: tuple[int, ...] = ()

    def build(
        self, units_shape: Sequence[int], input_dim: int, matrices: int = 3
    ) -> None:
        """Makes the variables: a mask of that shape, and so many matrices' scores."""
        #: bool, whether these are experts' neurons, each ranked in its own expert.
        self.of_experts = len(units_shape) > 1
        self._sizes = matrices, input_dim
        self._scores = self._add_scores(tuple(units_shape))
        self._mask = self._add("mask", tuple(units_shape), "ones")
        #: Variable `(F,)`, float32: the number that each neuron had at first.
        self.original_index = self._add("original_index", self._mask.shape, _numbers)
        self.built = True

    def _add_scores(self, units_shape: tuple[int, ...]) -> keras.Variable:
        # The mean of the rows' averages is the average of the rows' means, so
        # F numbers a matrix replace F D; only the maximum needs them all.
        matrices, input_dim = self._sizes
        each = (input_dim,) if self.scoring.row_reduce == "max" else ()
        return self._add("scores", (matrices, *units_shape, *each), "zeros")

    def _add(
        self, name: str, shape: tuple[int, ...], initializer: Any
    ) -> keras.Variable:
        kwargs = {"dtype": "float32", "autocast": False, "trainable": False}
        return self.add_weight(shape, initializer, name=name, **kwargs)

    def score_by(self, scoring: Scoring) -> None:
        """Sets how the scores are made; those of another shape begin at zero."""
        if scoring.row_reduce == "max" and self.by_unit:
            raise ArgumentError(
                "`row_reduce` must be 'mean' for a mixture of experts and for "
                "channels, whose scores are kept by unit, not by weight. Received: "
                "row_reduce='max'."
            )
        before, self.scoring = self.scoring.row_reduce, scoring
        if self.built and before != scoring.row_reduce:
            with scope_at(self.path):
                add = functools.partial(self._add_scores, self._mask.shape)
                renew_weight(self, "_scores", add)

    @property
    def mask(self) -> keras.Variable:
        """Variable `(F,)`, the mask that goes with the present weights."""
        return self._mask if self.active_track is None else self.active_track.mask

    @property
    def scores(self) -> keras.Variable:
        """Variable `(M, F)` or `(M, F, D)` of M matrices, the scores at present."""
        return self._scores if self.active_track is None else self.active_track.scores

    def importance(self) -> Tensor:
        """Importance `(F,)` of the neurons by the present scores."""
        return self.importance_of(self.scores.value)

    def importance_of(self, scores: Tensor) -> Tensor:
        """Importance `(F,)` by given scores, as this state reduces them."""
        if self.scoring.row_reduce == "max":  # else the rows are reduced already
            scores = ops.max(scores, axis=-1)
        return REDUCTIONS[self.scoring.matrix_reduce](scores, axis=0)

    def set_mask(self, mask: Tensor) -> None:
        """Sets the mask; while a pruner is at work, that one's too."""
        self._mask.assign(mask)
        if self.active_track is not None:  # a copy, as in `publish`
            self.active_track.mask.assign(ops.copy(self._mask.value))

    def publish(self) -> None:
        """Brings `scores` and `mask` up to the last optimizer step."""
        if self.active_track is None:
            return
        # A mask that was assigned from outside holds too. Copies: on jax two
        # variables that share one array cannot both be donated to the next step.
        mask = self._mask.value * self.active_track.mask.value
        self._mask.assign(mask)
        self.active_track.mask.assign(ops.copy(mask))
        self._scores.assign(ops.copy(self.active_track.scores.value))

    def cuts(self) -> list[Cut]:
        """How the neurons lie in its variables: what narrowing must slice."""
        axis = len(self._mask.shape) - 1  # the experts' comes first
        held = (self._scores, 1), (self._mask, 0), (self.original_index, 0)
        return [Cut(v, axis + at, experts=at if axis else None) for v, at in held]

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Saves scores and mask as they are now."""
        self.publish()
        super().save_own_variables(store)


def indices_of(mask: Tensor, name: str) -> np.ndarray:
    """Ascending indices of the active neurons in a mask: `(width,)`, `(E, width)`."""
    array = ops.convert_to_numpy(mask)
    alive = np.count_nonzero(array, axis=-1)
    if np.ptp(alive):
        raise ArgumentError(
            f"The experts of '{name}' have {alive.tolist()} active neurons. A model "
            "holds one width for all of them. Keep equally many in each row of the "
            "mask."
        )
    return np.nonzero(array)[-1].reshape(*array.shape[:-1], -1)


def _numbers(shape: Sequence[int], dtype: str) -> Tensor:
    # Not broadcast: torch could not assign to what is one row in memory.
    return ops.tile(ops.arange(shape[-1], dtype=dtype), (*shape[:-1], 1))


@contextlib.contextmanager
def scope_at(path: str) -> Iterator[None]:
    """A scope in which what is built gets its path below that of a layer."""
    with contextlib.ExitStack() as scopes:
        for name in filter(None, path.split("/")):
            scopes.enter_context(keras.name_scope(name))
        yield


# The states of layers that are not `Prunable`, as long as each layer lives.
_STATES: weakref.WeakKeyDictionary[keras.layers.Layer, NeuronState] = (
    weakref.WeakKeyDictionary()
)


def held_state(layer: keras.layers.Layer) -> NeuronState | None:
    """The state of the neurons that a layer makes, or None if there is none yet."""
    return _STATES.get(layer)


def state_of(
    layer: keras.layers.Layer, kernels: Sequence[Cut], by_unit: bool
) -> NeuronState:
    """The built state of the neurons that a layer makes; a new one if there is none.

    `kernels` say how they lie in its kernels. `by_unit`: whether a unit has one score a
    kernel, however many weights it has there.
    """
    state = _STATES.get(layer)
    if state is None:
        state = _STATES[layer] = NeuronState(name="neuron_state")
        first, lengths = kernels[0], tuple(cut.weights for cut in kernels)
        matrices = sum(cut.matrices for cut in kernels)
        # In the layer's scope, so that no two states have the same path; of a layer in
        # several replicas with a copy in each.
        strategy = getattr(first.variable.value, "distribute_strategy", None)
        path = layer.path or layer.name
        with scope_at(path), strategy.scope() if strategy else nullcontext():
            state.build(first.units_shape, max(lengths), matrices)
        state.row_lengths, state.by_unit = lengths, by_unit
    return state
