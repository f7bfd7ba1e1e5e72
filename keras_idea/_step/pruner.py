"""Algorithm 1 of IDEA Prune, inside the optimizer's step.

Shapes: F = hidden_dim (neurons), D = input_dim.

The algorithm needs what the optimizer's step needs, the weights and their gradients,
and ends as it does, with new weights. So while a run prunes, the optimizer's `apply`
is wrapped: before the step the sensitivities are taken, after it scores and masks are
renewed and the rows of dead neurons zeroed. Scores and masks are variables of the
optimizer as long as that lasts. The model has no other variables, the forward and the
backward pass no other operations than without a pruner, and whatever leads to a step of
that optimizer (`fit`, the user's own train step or loop, loss scaling, accumulation, a
mesh) is scored by the gradient that the step is made with.
"""

import functools
import math
import warnings
import weakref
from collections.abc import Callable, Iterable, MutableMapping

import keras
import numpy as np
from keras import ops

from keras_idea._finding.find import FFN
from keras_idea._groups.state import Live
from keras_idea._keras.optimizer_variables import (
    apply_count,
    as_int,
    innermost,
    parts,
    track_variable,
    trained_variables,
    untrack_variable,
    variable_key,
)
from keras_idea._signals import held_back
from keras_idea._step.replicas import once_for_all_replicas, scope_of
from keras_idea._step.row_ops import of_active, zero_rows
from keras_idea._step.scores_and_masks import update_scores_and_masks
from keras_idea._step.step_gradients import StepGradients
from keras_idea._step.track import Track
from keras_idea._step.train_function import (
    TrainFunction,
    swap_train_function,
    wait_for_gradients,
)
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.functional.masks import top_k_mask
from keras_idea.methods.learned_mask import MaskLearner
from keras_idea.methods.method import Method


class NeuronPruner:
    """Scores and masks the neurons of built FFNs in each step of an optimizer."""

    def __init__(
        self,
        tracks: Iterable[Track],
        method: Method | None = None,
        learner: MaskLearner | None = None,
    ) -> None:
        """`method` scores the units (None: `Method`); `learner` learns their masks."""
        self.tracks = list(tracks)
        self._method = method or Method()
        self.learner = learner
        self._optimizer: keras.Optimizer = None
        self._functions: TrainFunction | None = None
        #: int, the optimizer step at which it was set to work.
        self.start = 0
        self._late = False  # whether a mask lies behind its schedule

    @property
    def attached(self) -> bool:
        """bool, whether it is at work."""
        held = [track.ffn.state.active_track for track in self.tracks]
        return any(live is not None and live.pruner() is self for live in held)

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

    def try_reuse(
        self, model: keras.Model, tracks: list[Track], method: Method
    ) -> bool:
        """Adopts the tracks of a new run if the compiled step can be reused for them.

        False: it was made for another run.
        """
        if innermost(model.optimizer) is not self._optimizer or self.learner:
            return False
        if method is not self._method and {_score(method), _score(self._method)} != {
            Method.score
        }:
            return False
        if list(map(_as_compiled, tracks)) != list(map(_as_compiled, self.tracks)):
            return False
        dims = [track.ffn.hidden_dim for track in tracks]
        if dims != [track.mask.shape[-1] for track in self.tracks]:
            return False
        for new, old in zip(tracks, self.tracks, strict=True):
            new.scores, new.mask = old.scores, old.mask
        self.tracks = tracks
        return True

    @held_back()
    def attach(self, model: keras.Model) -> None:
        """Sets it to work, from the scores and masks that the FFNs have.

        The model is compiled, its optimizer built; on jax it is in sync.
        """
        optimizer = innermost(model.optimizer)
        if optimizer is not self._optimizer:
            self._optimizer = optimizer
            with scope_of(model):
                self._make_variables()
        else:
            for variable in self.variables:
                track_variable(optimizer, variable)
        self.start = as_int(optimizer.iterations)
        self._steps.assign(0)
        self._late = False
        for track in self.tracks:
            track.ffn.update_state()
            state = track.ffn.state
            track.scores.assign(ops.copy(state.scores.value))
            track.mask.assign(self._first_mask(track))
            state.active_track = Live(track.scores, track.mask, weakref.ref(self))
            state.publish()
        if self.learner is not None:
            self.learner.begin(optimizer, self.start)
        self._guarded = [
            (track, cut)
            for track in self.tracks
            for cut in track.ffn.cuts_with_gradients()
        ]
        self._step = optimizer.apply
        optimizer.apply = self._apply
        self._wrapped = [(optimizer, "apply")]
        for part in parts(model.optimizer):
            part.save_own_variables = functools.partial(_save_own, part)
            self._wrapped.append((part, "save_own_variables"))
        self._functions = swap_train_function(model, self._functions)

    @held_back()
    def detach(self, model: keras.Model) -> None:
        """Leaves scores and masks with the FFNs, and the optimizer as it was.

        The variables of the model are in sync.
        """
        if self.learner is not None:
            self.learner.end()
        for track in self.tracks:
            _release(track.ffn)
            if track.scheduled:
                _warn_unrouted_experts(track.ffn)
        for variable in self.variables:
            untrack_variable(self._optimizer, variable)
        for part, name in self._wrapped:
            delattr(part, name)
        self._functions = swap_train_function(model, self._functions)

    def _make_variables(self) -> None:
        # As moments are made: each in its reference's layout over the devices.
        add = self._optimizer.add_variable_from_reference
        for track in self.tracks:
            track.scores = add(track.ffn.state.scores, name="live")
            track.mask = add(track.ffn.state.mask, name="live")
        self._steps = add(apply_count(self._optimizer), name="pruner")
        if self.learner is not None:
            self.learner.make_variables(self._optimizer)

    def _first_mask(self, track: Track) -> Tensor:
        """The mask that goes with the step at which it begins."""
        mask = ops.copy(track.ffn.state.mask.value)
        if not track.scheduled:
            return mask
        k = track.schedule(as_int(self._optimizer.iterations))
        # Between two milestones nothing is behind, and ranking costs compilations.
        if ops.convert_to_numpy(mask).sum(-1).max() <= k:
            return mask
        importance = track.ffn.importance()
        # Where nothing is known of the neurons, the first step tells.
        if not ops.convert_to_numpy(importance).any():
            return mask
        return top_k_mask(importance, k, alive=mask)

    def _apply(
        self,
        grads: Iterable[Tensor],
        trainable_variables: Iterable[keras.Variable] | None = None,
    ) -> None:
        """The optimizer's `apply`, with what Algorithm 1 does around it."""
        known = trained_variables(self._optimizer)
        if trainable_variables is not None:
            known = trainable_variables = list(trainable_variables)
        grads = list(grads)
        ffns = [track.ffn for track in self.tracks]
        gradients = StepGradients(self._optimizer, grads, known, ffns)
        with wait_for_gradients(gradients.first_ready_gradient):
            by_masks: list[Tensor] = []
            if self.learner is not None:
                by_masks = self.learner.gradients_by_mask(gradients)
                places, step = self._places(known), self._optimizer.iterations
                grads = self.learner.gradients_by_weights(grads, places, step)
                gradients = StepGradients(self._optimizer, grads, known, ffns)
                once_for_all_replicas(self.learner.put_weights, ())
            # Before the step: afterwards the weights are new ones.
            fresh = [_scored(self._method, track, gradients) for track in self.tracks]
            ends = gradients.is_step_end, gradients.completed_steps
            self._step(self._of_active(grads, known), trainable_variables)
            once_for_all_replicas(self._renew, (fresh, by_masks, *ends))

    def _places(
        self, variables: list[keras.Variable]
    ) -> Callable[[keras.Variable], int | None]:
        """A function that finds a variable's place among those of a step."""
        key = functools.partial(variable_key, self._optimizer)
        places = {key(variable): i for i, variable in enumerate(variables)}
        return lambda variable: places.get(key(variable))

    def _of_active(
        self, grads: list[Tensor], variables: list[keras.Variable]
    ) -> list[Tensor]:
        """The gradients, zero where they are a pruned neuron's.

        A zeroed neuron has a gradient if activation(0) is not 0 or a regularizer adds
        one, and that gradient would count in the norm that clips all the others.
        """
        if not self._guarded:
            return grads
        grads, place_of = list(grads), self._places(variables)
        for track, cut in self._guarded:
            place = place_of(cut.variable)
            if place is not None and grads[place] is not None:
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
        catch_up_until = math.inf if self._late else self.start + 1
        self._late = not update_scores_and_masks(
            self.tracks, fresh, self._optimizer.iterations, catch_up_until, is_step_end
        )
        if self.learner is not None:
            after = ops.cast(self._optimizer.iterations, "int32")
            steps = after - completed_steps
            self.learner.learn(by_masks, steps, is_step_end, completed_steps)


def _score(method: Method) -> Callable[..., Tensor]:
    return type(method).score


def _scored(method: Method, track: Track, gradients: StepGradients) -> Tensor:
    """What a method measures of an FFN in a step, shaped as its scores."""
    scores = ops.cast(method.score(track.ffn, gradients), "float32")
    wanted = tuple(track.scores.shape)
    if tuple(scores.shape) == wanted:
        return scores
    shapes = [wanted]
    if method.scoring.row_reduce == "mean":  # else each weight has a score
        shapes.append(tuple(track.mask.shape))
    if tuple(scores.shape) not in shapes:
        raise ArgumentError(
            f"`score` of method {method.name!r} must return a tensor of shape "
            f"{' or '.join(map(str, shapes[::-1]))}. Received: a tensor of shape "
            f"{tuple(scores.shape)}, of {track.ffn.name}."
        )
    return ops.broadcast_to(scores, wanted)  # as of each kernel


def _release(ffn: FFN) -> None:
    """Leaves the newest scores and mask with an FFN."""
    state = ffn.state
    state.publish()
    if state.active_track is not None:
        # Keras's averaged weights, assigned at the end, have restored them.
        zero_rows(ffn.cuts(), state.mask.value)
    state.active_track = None


def _as_compiled(track: Track) -> tuple:
    """What a compiled step has of a track, besides the shapes."""
    return id(track.ffn.state), track.scheduled, track.scheduled and track.schedule


def _warn_unrouted_experts(ffn: FFN) -> None:
    if ffn.state.experts is None or ffn.width == ffn.full_dim:
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
        if live is None:
            continue
        pruner = live.pruner()
        if pruner is not None:
            pruner.detach(model)
        else:  # the model was compiled again since
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
