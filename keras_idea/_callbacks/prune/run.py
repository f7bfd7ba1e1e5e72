"""One pruning run of one model: what is due after which optimizer step."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._finding.budget import plain_parameters
from keras_idea._finding.find import FFN
from keras_idea._groups.kinds import KINDS, NEURONS
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import student_of
from keras_idea._keras.optimizer_variables import as_int, innermost
from keras_idea._signals import held_back
from keras_idea._step.pruner import NeuronPruner
from keras_idea._step.replicas import replicas_of
from keras_idea._step.track import Track
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea._surgery.optimizer_state import check_carriable
from keras_idea._surgery.refit import (
    carry_out_and_refit,
    carry_out_decision,
    check_data,
    check_refit,
)
from keras_idea.errors import ArgumentError
from keras_idea.functional.width import narrowing_steps, stored_width
from keras_idea.methods.learned_mask import MaskLearner
from keras_idea.methods.method import Decision, Method, keep_largest

# A function of the fitted model and the optimizer steps taken.
_Action: TypeAlias = Callable[[keras.Model, int], None]


class PruningRun:
    """A method at work on the groups of one model, from step to step.

    Args:
        prune: IdeaPruneCallback. Its settings.
        model: keras.Model. It is compiled, built and in sync.
        targets: list of (`FFN` handle, units to keep in it).
        pruner: the pruner of the last run or None. Its compiled step is used again if
            it fits.

    Attributes:
        tracks: list of `Track`, one per group.
        end_step: int. The step from which on no more units are active than are kept.
        at_work: bool. Whether the pruner scores and masks in each step.
        pruner: `NeuronPruner` or None.
    """

    def __init__(
        self,
        prune: Any,
        model: keras.Model,
        targets: Sequence[tuple[FFN, int]],
        pruner: NeuronPruner | None = None,
    ) -> None:
        self._method = method = prune.method
        self._span = span = (prune.begin_step, prune.prune_steps)
        self.start = as_int(model.optimizer.iterations)
        self.end_step = max(prune.end_step, self.start)
        self.pruner, self.at_work = pruner, False
        self.tracks: list[Track] = []
        scheduled = method.decision_step(*span) is None
        for ffn, target in targets:
            ffn.state.score_by(method.scoring)
            ffn.state.target_dim = target  # for callbacks that watch the run
            ffn.state.full_dim = ffn.full_dim
            widths = ffn.full_dim, target, *span, prune.update_every
            schedule = method.width_schedule(*widths)
            track = Track(ffn, target, schedule, ffn.width, scheduled=scheduled)
            self.tracks.append(track)
        self._work = [(t.ffn, t.target_dim) for t in self.tracks if t.has_work]
        self._to_learn: MaskLearner | None = None
        self._actions: list[tuple[int, _Action]] = []
        self._wide = self._sizes(model)
        eager = keras.backend.backend() == "torch" and not model.jit_compile
        narrowings = self._narrowing_steps(prune, eager)
        # A model that stays masked is scored to the end.
        if self._work or narrowings or prune.compact == "off":
            self._begin(model, narrowings)
        else:
            self.pruner = None

    @property
    def due_step(self) -> float:
        """The optimizer step after which `catch_up` has something to do, or inf."""
        return self._actions[0][0] if self._actions else float("inf")

    def catch_up(self, model: keras.Model, step: int) -> str | None:
        """Does all that is due after so many optimizer steps, in order.

        Returns a line to print if the model has become as narrow as it will.
        """
        narrowed = False
        while self.due_step <= step:
            _, action = self._actions[0]
            # Milestones that were passed at once are one narrowing.
            self._actions = [e for e in self._actions if e[0] > step or e[1] != action]
            action(model, step)
            narrowed |= action == self._narrow
        if not narrowed or self._narrowings_left:
            return None
        (widths, parameters), (narrow, fewer) = self._wide, self._sizes(model)
        parts = ", ".join(f"{what} {n} to {narrow[what]}" for what, n in widths.items())
        return (
            f"Narrowed at step {step}: {parts}, {parameters:,} to {fewer:,} parameters."
        )

    @held_back()
    def end(self, model: keras.Model) -> bool:
        """Leaves the masks as they are; returns whether all was done."""
        self._rest(model)
        done = not self._narrowings_left
        self._actions = []
        return done and not any(track.too_wide for track in self.tracks)

    def logs(self) -> dict[str, float]:
        """The log entries `width`, `sparsity`, and one per other kind."""
        logs: dict[str, float] = {}
        for kind in KINDS:
            tracks = [track for track in self.tracks if track.ffn.kind == kind]
            if not tracks:
                continue
            active = sum(track.ffn.width for track in tracks)
            logs["width" if kind == NEURONS else kind] = active / len(tracks)
            if kind == NEURONS:
                full = sum(track.schedule.full_dim for track in tracks)
                logs["sparsity"] = 1 - active / full
        return logs

    @property
    def _narrowings_left(self) -> bool:
        return any(action == self._narrow for _, action in self._actions)

    def _begin(self, model: keras.Model, narrowings: Sequence[int]) -> None:
        """Checks what can fail, and gets everything ready."""
        actions: list[tuple[int, _Action]] = []
        decision = self._method.decision_step(*self._span)
        if decision is not None and self._work:
            _check_method(self._method, model, self._work)
            self._to_learn = self._method.learner(self._work, *self._span)
            if self._to_learn is not None:
                _check_start(self._method, self.start, decision)
                actions.append((self._span[0], self._learn))
            actions.append((decision, self._decide))
        actions += [(step, self._narrow) for step in narrowings]
        self._actions = sorted(actions, key=lambda entry: entry[0])
        self._prune(model)

    def _prune(self, model: keras.Model, learner: MaskLearner | None = None) -> None:
        """Sets a pruner to work, on the groups as wide as they are now."""
        pruner = None if learner is not None else self.pruner
        if pruner is None or not pruner.try_reuse(model, self.tracks, self._method):
            pruner = NeuronPruner(self.tracks, self._method, learner)
        self.pruner = pruner
        pruner.attach(model)
        self.at_work = True

    def _rest(self, model: keras.Model) -> None:
        """Takes the pruner off; scores and masks stay."""
        if self.pruner is not None and self.pruner.attached:
            self.pruner.detach(model)
        self.at_work = False

    @property
    def learner(self) -> MaskLearner | None:
        """What learns masks in the optimizer's steps now, or None."""
        learner = self._to_learn
        return learner if learner is not None and learner.begun else None

    def show_masks(self, model: keras.Model, deterministic: bool) -> None:
        """Shows the masks that are being learned, or draws those to train by.

        `deterministic`: as they would be at the end, for an evaluation or a file.
        """
        if self.learner is None:
            return
        if deterministic:
            self.learner.show()
        else:
            self.learner.draw(as_int(innermost(model.optimizer).iterations))

    def _learn(self, model: keras.Model, step: int) -> None:
        self._rest(model)
        learner, begin_step = self._to_learn, self._span[0]
        self._prune(model, learner)
        if step > begin_step and learner is not None and not learner.continues:
            warn_user(
                f"The masks were to be learned from step {begin_step} on, and nothing "
                f"is known of them at step {step}: fewer steps remain. Resume from a "
                "`keras_idea.Checkpoint`, or set a later begin_step."
            )
        # Nothing is learned yet to decide by.
        self._actions = [(max(due, step + 1), act) for due, act in self._actions]

    def _decide(self, model: keras.Model, step: int) -> None:
        if self.learner is None:
            _decide(self._method, model, self._work)
            return
        learned = self.learner.decide()
        self._to_learn = None
        self._rest(model)  # which gives the kernels back
        _decide(self._method, model, self._work, learned)
        self._prune(model)

    @held_back()
    def _narrow(self, model: keras.Model, step: int) -> None:
        check_carriable(model.optimizer)
        last = not self._narrowings_left
        self._rest(model)
        cuts = []
        for track in self.tracks:
            ffn = track.ffn
            width = ffn.width if last else _width_for(track, ffn.width)
            if width < ffn.hidden_dim:
                mask = keras.ops.convert_to_numpy(ffn.mask)
                cuts.append((ffn, stored_neurons(mask, width)))
        narrow_whole(model, cuts)
        if not last:
            self._prune(model)

    def _narrowing_steps(self, prune: Any, eager: bool) -> list[int]:
        """The steps after which a run that begins now narrows its model."""
        tracks, start, end = self.tracks, self.start, prune.end_step
        if all(track.ffn.hidden_dim <= track.target_dim for track in tracks):
            return []
        schedules = [track.schedule for track in tracks]
        steps = narrowing_steps(prune.compact, schedules, end, eager)
        # A resumed run has the widths of the one that was not stopped.
        steps = [s for s in steps if s > start or s >= end or not _done(tracks, s)]
        # If pruning is over by the schedule, the next step is the first that can mask.
        late = any(track.began > track.schedule(start) for track in tracks)
        return sorted({max(s, start + 1) if late else s for s in steps})

    def _sizes(self, model: keras.Model) -> tuple[dict[str, str], int]:
        """What is printed of each kind -> its widths; and the parameters."""
        widths: dict[str, list[int]] = {kind: [] for kind in KINDS}
        for track in self.tracks:
            widths[track.ffn.kind].append(track.ffn.hidden_dim)
        shown = {KINDS[kind].width: _widths(w) for kind, w in widths.items() if w}
        return shown, plain_parameters(model)


def stored_neurons(mask: np.ndarray, width: int) -> np.ndarray:
    """Ascending indices of the active units, filled up with pruned ones to `width`.

    Example:
    >>> stored_neurons(np.array([0.0, 1.0, 0.0, 1.0]), width=3)
    array([0, 1, 3])
    """
    return np.sort(np.argsort(-mask, kind="stable")[..., :width])


def _done(tracks: Sequence[Track], step: int) -> bool:
    """Whether an earlier part of the run has narrowed the model after `step`."""
    return all(t.ffn.hidden_dim <= _width_for(t, t.schedule(step)) for t in tracks)


def _width_for(track: Track, active: int) -> int:
    return stored_width(active, track.schedule, track.ffn.device_parts)


def _widths(widths: Sequence[int]) -> str:
    """One width that all have, or the first few."""
    if len(set(widths)) == 1:
        return str(widths[0])
    return f"[{', '.join(map(str, widths[:6]))}{', ...' if len(widths) > 6 else ''}]"


def _check_start(method: Method, start: int, end: int) -> None:
    if start >= end:
        raise ArgumentError(
            f"Method {method.name!r} learns up to step {end} (begin_step + "
            f"prune_steps), but this run begins at step {start}. Begin later."
        )


def _check_method(
    method: Method, model: keras.Model, targets: Sequence[tuple[FFN, int]]
) -> None:
    """Rejects, before the first step, groups or data that a method cannot use."""
    groups = [ffn for ffn, _ in targets]
    method.check(groups)
    if method.refit_data is not None:
        check_refit(groups, model.optimizer, replicas_of(model))
        check_data(student_of(model), targets, method.refit_data)


def _decide(
    method: Method,
    model: keras.Model,
    targets: Sequence[tuple[FFN, int]],
    learned: Sequence[Decision] | None = None,
) -> None:
    """Masks all units but those that a method keeps; `learned`: what it has learned."""
    student, groups = student_of(model), [ffn for ffn, _ in targets]
    if learned is None:
        learned = keep_largest(targets, method.importance(student, groups, None))
    decisions = list(zip(groups, learned, strict=True))
    if method.refit_data is not None:
        carry_out_and_refit(student, decisions, method.refit_data)
        return
    with held_back():
        for ffn, decision in decisions:
            carry_out_decision(ffn, decision)
