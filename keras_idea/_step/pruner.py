"""Algorithm 1 of IDEA Prune, inside the optimizer's step.

Shapes: F = hidden_dim (neurons), D = input_dim.

While a run prunes, the optimizer's `apply` is wrapped: before the step the
sensitivities are taken, after it scores and masks are renewed and the weights of pruned
neurons zeroed. Scores and masks are variables of the optimizer as long as that lasts.
The model has no other variables, the forward and the backward pass no other operations,
and whatever leads to a step of that optimizer (`fit`, the user's own train step or
loop, loss scaling, accumulation, a mesh) is scored by the gradient of that step.
"""

import functools
import warnings
import weakref
from collections.abc import Iterable, MutableMapping

import keras
import numpy as np
from keras import ops

from keras_idea._graph.group import FFN
from keras_idea._groups.state import Live
from keras_idea._keras.models import make_train_function, renew_state
from keras_idea._keras.optimizer_variables import (
    apply_count,
    as_int,
    innermost,
    parts,
    trained_variables,
    untrack_variable,
)
from keras_idea._signals import held_back
from keras_idea._step.algorithm import StepGradients, Track, update_scores_and_masks
from keras_idea._step.replicas import (
    once_for_all_replicas,
    scope_of,
    wait_for_gradients,
)
from keras_idea._step.row_ops import of_active, zero_rows
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.methods.learned_mask import MaskLearner
from keras_idea.methods.method import Method


class NeuronPruner:
    """Scores and masks the units of built groups in each step of an optimizer.

    `method` scores the units (None: `Method`); `learner` learns their masks.
    """

    def __init__(
        self,
        tracks: Iterable[Track],
        method: Method | None = None,
        learner: MaskLearner | None = None,
    ) -> None:
        self.tracks = list(tracks)
        self.learner = learner
        self._method = method or Method()

    @property
    def variables(self) -> list[keras.Variable]:
        """List of the variables that the optimizer holds for it."""
        pairs = [(track.scores, track.mask) for track in self.tracks]
        found = [variable for pair in pairs for variable in pair] + [self._steps]
        return found if self.learner is None else found + self.learner.variables

    @property
    def steps(self) -> int:
        """int, the optimizer steps seen since it was set to work."""
        return as_int(self._steps)

    @held_back()
    def attach(self, model: keras.Model) -> None:
        """Sets it to work, from the scores and masks that the FFNs have.

        The model is compiled, its optimizer built; on jax it is in sync.
        """
        self._optimizer = optimizer = innermost(model.optimizer)
        #: int, the optimizer step at which it was set to work.
        self.start = as_int(optimizer.iterations)
        with scope_of(model):
            # As moments are made: each in its reference's layout over the devices.
            add = optimizer.add_variable_from_reference
            for track in self.tracks:
                track.scores = add(track.ffn.state.scores, name="live")
                track.mask = add(track.ffn.state.mask, name="live")
            self._steps = add(apply_count(optimizer), name="pruner")
            if self.learner is not None:
                self.learner.make_variables(optimizer)
        for track in self.tracks:
            track.ffn.update_state()
            state = track.ffn.state
            track.scores.assign(ops.copy(state.scores.value))
            track.mask.assign(ops.copy(state.mask.value))
            state.active_track = Live(track.scores, track.mask, weakref.ref(self))
            state.publish()
        if self.learner is not None:
            self.learner.begin(optimizer, self.start)
        self._guarded = [
            (track, cut)
            for track in self.tracks
            for cut in track.ffn.cuts_with_gradients()
        ]
        self._step, optimizer.apply = optimizer.apply, self._apply
        self._wrapped = [(optimizer, "apply")]
        for part in parts(model.optimizer):
            part.save_own_variables = functools.partial(_save_own, part)
            self._wrapped.append((part, "save_own_variables"))
        _renew_train_function(model)

    @held_back()
    def detach(self, model: keras.Model) -> None:
        """Leaves scores and masks with the FFNs, and the optimizer as it was.

        The variables of the model are in sync. Nothing happens if it is not at work.
        """
        if pruner_of(self._optimizer) is not self:
            return
        if self.learner is not None:
            self.learner.put_weights()
        for track in self.tracks:
            _release(track.ffn)
            if track.scheduled:
                _warn_unrouted_experts(track.ffn)
        for variable in self.variables:
            untrack_variable(self._optimizer, variable)
        for part, name in self._wrapped:
            delattr(part, name)
        _renew_train_function(model)

    def _apply(
        self,
        grads: Iterable[Tensor],
        trainable_variables: Iterable[keras.Variable] | None = None,
    ) -> None:
        """The optimizer's `apply`, with what Algorithm 1 does around it."""
        optimizer, grads = self._optimizer, list(grads)
        known = trained_variables(optimizer)
        if trainable_variables is not None:
            known = trainable_variables = list(trainable_variables)
        ffns = [track.ffn for track in self.tracks]
        gradients = StepGradients(optimizer, grads, known, ffns)
        with wait_for_gradients(gradients.first_ready):
            by_masks: list[Tensor] = []
            if self.learner is not None:
                by_masks = self.learner.gradients_by_mask(gradients)
                given = grads, gradients.place_of, optimizer.iterations
                grads = self.learner.gradients_by_weights(*given)
                gradients = StepGradients(optimizer, grads, known, ffns)
                once_for_all_replicas(self.learner.put_weights, ())
            # Before the step: afterwards the weights are new ones.
            fresh = [_scored(self._method, track, gradients) for track in self.tracks]
            self._step(self._of_active(grads, gradients), trainable_variables)
            ends = gradients.is_step_end, gradients.completed_steps
            once_for_all_replicas(self._renew, (fresh, by_masks, *ends))

    def _of_active(self, grads: list[Tensor], gradients: StepGradients) -> list[Tensor]:
        """The gradients, zero where they are a pruned neuron's.

        A zeroed neuron has a gradient if activation(0) is not 0 or a regularizer adds
        one, and that gradient would count in the norm that clips all the others.
        """
        grads = list(grads)
        for track, cut in self._guarded:
            place = gradients.place_of(cut.variable)
            if place is not None:
                grads[place] = of_active(cut, grads[place], track.mask.value)
        return grads

    def _renew(
        self,
        fresh: list[Tensor],
        by_masks: list[Tensor],
        is_step_end: Tensor,
        completed_steps: Tensor,
    ) -> None:
        self._steps.assign_add(completed_steps)
        taken = self._optimizer.iterations
        update_scores_and_masks(self.tracks, fresh, taken, is_step_end)
        if self.learner is not None:
            steps = ops.cast(taken, "int32") - completed_steps
            self.learner.learn(by_masks, steps, is_step_end, completed_steps)


def _scored(method: Method, track: Track, gradients: StepGradients) -> Tensor:
    """What a method measures of an FFN in a step, shaped as its scores."""
    scores = ops.cast(method.score(track.ffn, gradients), "float32")
    shapes = [tuple(track.scores.shape)]
    if method.scoring.row_reduce == "mean":  # else each weight has a score
        shapes.append(tuple(track.mask.shape))
    if tuple(scores.shape) not in shapes:
        raise ArgumentError(
            f"`score` of method {method.name!r} must return a tensor of shape "
            f"{' or '.join(map(str, shapes[::-1]))}. Received: shape "
            f"{tuple(scores.shape)}, of {track.ffn.name}."
        )
    # One number for each unit is that of each kernel.
    many = tuple(scores.shape) == shapes[0]
    return scores if many else ops.broadcast_to(scores, shapes[0])


def _renew_train_function(model: keras.Model) -> None:
    """Makes a model's train function again: it was made for other variables."""
    renew_state(model)
    if getattr(model, "train_function", None) is not None:
        make_train_function(model)


def _release(ffn: FFN) -> None:
    """Leaves the newest scores and mask with an FFN."""
    state = ffn.state
    state.publish()
    if state.active_track is not None:
        # Keras's averaged weights, assigned at the end, have restored them.
        zero_rows(ffn.cuts(), state.mask.value)
    state.active_track = None


def _warn_unrouted_experts(ffn: FFN) -> None:
    if not ffn.state.of_experts or ffn.width == ffn.full_dim:
        return
    scores = ops.convert_to_numpy(ffn.scores)
    silent = np.flatnonzero(~scores.any(axis=(0, -1))).tolist()
    if silent:
        warnings.warn(
            f"No token has come to experts {silent} of {ffn.name}: nothing is known of "
            "their neurons, and those of the lowest numbers stay.",
            stacklevel=2,
        )


def pruner_of(optimizer: keras.Optimizer | None) -> NeuronPruner | None:
    """The `NeuronPruner` at work in an optimizer, or None."""
    step = vars(innermost(optimizer)).get("apply") if optimizer is not None else None
    pruner = getattr(step, "__self__", None)
    return pruner if isinstance(pruner, NeuronPruner) else None


def end_pruning(model: keras.Model, found: Iterable[FFN]) -> None:
    """Takes off the pruner that a fit ended by an exception has left at work."""
    for ffn in found:
        live = None if ffn.held_state is None else ffn.held_state.active_track
        pruner = None if live is None else live.pruner()
        if pruner is not None:
            pruner.detach(model)
        elif live is not None:  # the model was compiled again since
            _release(ffn)


def own_variables(optimizer: keras.Optimizer) -> list[keras.Variable]:
    """The optimizer's variables without those of a pruner at work."""
    pruner = pruner_of(optimizer)
    theirs = set() if pruner is None else set(map(id, pruner.variables))
    return [v for v in optimizer.variables if id(v) not in theirs]


def _save_own(part: keras.Optimizer, store: MutableMapping[str, np.ndarray]) -> None:
    """Saves an optimizer without the pruner, to a file that loads without one."""
    for i, variable in enumerate(own_variables(part)):
        store[str(i)] = ops.convert_to_numpy(variable)
