"""One pruning run of a model and its optimizer, which owns all that the run knows."""

import bisect
import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras

from keras_idea.callbacks.prune.compile_ahead import CompileAhead
from keras_idea.callbacks.prune.deciding import check_method, decide
from keras_idea.callbacks.prune.narrowing import (
    milestones_to_come,
    narrow,
    steps_to_come,
)
from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.functional.importance import memory_steps
from keras_idea.functional.milestones import Compact
from keras_idea.groups.kinds import KINDS, NEURONS
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.optimizer_variables import as_int, innermost
from keras_idea.methods.learned_mask import MaskLearner
from keras_idea.methods.method import Method
from keras_idea.signals import held_back
from keras_idea.step.pruner import NeuronPruner
from keras_idea.step.track import Track
from keras_idea.surgery.optimizer_state import check_carriable

#: A function of the fitted model and the optimizer steps taken.
Action: TypeAlias = Callable[[keras.Model, int], None]


class Agenda:
    """A queue of actions, by the optimizer step after which they are due.

    Example:
    >>> agenda = Agenda()
    >>> agenda.add(20, print)
    >>> agenda.due_step, agenda.take(19), agenda.take(20) is print, agenda.due_step
    (20, None, True, inf)
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, Action]] = []

    @property
    def due_step(self) -> float:
        """The step after which the next action is due; inf if there is none."""
        return self._entries[0][0] if self._entries else float("inf")

    def __contains__(self, action: Action) -> bool:
        return any(action == other for _, other in self._entries)

    def add(self, step: int, action: Action) -> None:
        """Adds an action, behind all that are due after the same step."""
        bisect.insort(self._entries, (step, action), key=operator.itemgetter(0))

    def is_due(self, action: Action, step: int) -> bool:
        """Whether an action is due after so many steps."""
        return any(action == other for due, other in self._entries if due <= step)

    def take(self, step: int) -> Action | None:
        """Takes the next action that is due, if any; one due twice is taken once."""
        if step < self.due_step:
            return None
        _, action = self._entries[0]
        stay = [e for e in self._entries if e[0] > step or e[1] != action]
        self._entries = stay
        return action

    def postpone(self, step: int) -> None:
        """Lets nothing be due before `step`."""
        self._entries = [(max(due, step), action) for due, action in self._entries]

    def clear(self) -> None:
        """Leaves nothing to do."""
        self._entries = []


#: Steps whose scoring takes as long as one compilation without scoring: on one core,
#: 2.5 s versus 0.4 ms per step of 14 ms (benchmarks/results/peers.md, jax, small).
WORTH_COMPILING = 5_000
#: Steps that are scored first in any case, to find out what cannot be ranked.
SEEN_STEPS = 10


class Session:
    """One method at work on the FFNs of one model, from step to step.

    Whatever happens between two steps stands on one agenda: the pruner rests and goes
    on, masks begin to be learned, the method decides, the model becomes narrower.

    Args:
        method: a `keras_idea.methods.Method`.
        targets: list of (`FFN` handle, neurons to keep in it).
        begin_step: int, the last optimizer step at full width.
        prune_steps: int, steps from full width to the target.
        update_every: int, steps between two masks. Default 1.
        before: the `Session` of the last run of the same model, or None: what it has
            compiled is used again.
    """

    def __init__(
        self,
        method: Method,
        targets: Sequence[tuple[FFN, int]],
        begin_step: int,
        prune_steps: int,
        update_every: int = 1,
        before: "Session | None" = None,
    ) -> None:
        self._method, self._begin_step = method, begin_step
        self._span = span = (begin_step, prune_steps)
        self._decision_step = method.decision_step(*span)
        self.tracks: list[Track] = []
        for ffn, target in targets:
            ffn.state.score_by(method.scoring)
            ffn.state.target_dim = target  # for who watches the run
            ffn.state.full_dim = ffn.full_dim  # of which a later fraction is one too
            schedule = method.width_schedule(ffn.full_dim, target, *span, update_every)
            scheduled = self._decision_step is None
            track = Track(ffn, target, schedule, ffn.width, scheduled=scheduled)
            self.tracks.append(track)
        self._work = [(t.ffn, t.target_dim) for t in self.tracks if t.has_work]
        self._learner: MaskLearner | None = None
        self._agenda = Agenda()
        self._narrowing_steps: list[int] = []
        #: The step from which on no more neurons are active than are to be kept.
        self.last_step = float("inf")
        self.pruner: NeuronPruner | None = before.pruner if before else None
        #: What compiles the train steps of widths to come.
        self.ahead: CompileAhead = before.ahead if before else CompileAhead()

    @property
    def has_work(self) -> bool:
        """bool, whether there is anything to prune, or to cut out."""
        prunes = any(track.has_work for track in self.tracks)
        return prunes or bool(self._narrowing_steps)

    @property
    def due_step(self) -> float:
        """The optimizer step after which `advance` has something to do, or inf."""
        return self._agenda.due_step

    def plan_narrowing(
        self, compact: Compact, start: int, eager: bool, ahead: bool
    ) -> None:
        """Says when the model, trained for `start` steps, is to become narrower.

        `eager`: no step is compiled; `ahead`: narrower ones are, in the background.
        """
        end_step = self._method.end_step(*self._span)
        steps = steps_to_come(compact, self.tracks, end_step, start, eager)
        self._narrowing_steps = steps
        if ahead:
            self.ahead.begin(milestones_to_come(self.tracks, steps))

    def begin(self, model: keras.Model, start: int, tracing: bool = False) -> None:
        """Checks what can fail, and gets everything ready, after `start` steps.

        `tracing`: the model's train function is being traced.
        """
        self.last_step = max(self._method.end_step(*self._span), start)
        if self._decision_step is not None and self._work:
            check_method(self._method, model, self._work)
            self._learner = self._method.learner(self._work, *self._span)
            if self._learner is not None:
                _check_start(self._method, start, self._decision_step)
                self._agenda.add(self._begin_step, self._learn)
            self._agenda.add(self._decision_step, self._decide)
        for step in self._narrowing_steps:
            self._agenda.add(step, self._narrow)
        self._prune(model, tracing=tracing)

    def pause_until_needed(
        self, model: keras.Model, step: int, watched: bool = False
    ) -> None:
        """Takes the pruner off until scores can matter, if nobody watches them.

        What lies `memory_steps` back has no weight left in a score. If steps are
        compiled, the program without scores is one more to compile, which pays only in
        a long stage. All by the optimizer's count, so that a run that continues from a
        checkpoint takes each step with the same program.

        Not for a loop that reports epochs only: the pruner could come back too late.
        """
        memory = memory_steps(self._method.scoring.ema_decay)
        first = self._begin_step - memory - model.steps_per_execution + 1
        compiled = keras.backend.backend() != "torch"
        least = WORTH_COMPILING if compiled else SEEN_STEPS
        if watched or first <= max(least, step) or self._decision_step is not None:
            return
        if self.pruner is None or not self.pruner.attached:
            return
        if self._rest in self._agenda:
            return
        # An expert that no token comes to for long is ranked by what lies far back.
        if any(track.ffn.state.experts is not None for track in self.tracks):
            return
        if step >= SEEN_STEPS:
            self._rest(model)
        else:
            self._agenda.add(SEEN_STEPS, self._rest)
        self._agenda.add(first, self._prune)

    def narrows(self, step: int) -> bool:
        """Whether `advance` will make the model narrower after so many steps."""
        return self._agenda.is_due(self._narrow, step)

    def advance(self, model: keras.Model, step: int) -> bool:
        """Does what is due after so many optimizer steps, if anything.

        Returns:
            bool, whether the model has become as narrow as it will.
        """
        narrows = self.narrows(step)
        while (action := self._agenda.take(step)) is not None:
            action(model, step)
        return narrows and self._narrow not in self._agenda

    @held_back()
    def end(self, model: keras.Model) -> bool:
        """Leaves the masks as they are, and nothing that continues pruning.

        Returns whether all was done that was to be done.
        """
        self.ahead.end()
        self._rest(model)
        done = self._narrow not in self._agenda and not self.wider_than_due()
        self._agenda.clear()
        return done

    def wider_than_due(self) -> list[FFN]:
        """The FFNs with more neurons than they were to keep."""
        return [track.ffn for track in self.tracks if track.too_wide]

    def planned(self, step: int) -> dict[str, float]:
        """The log entries `width`, `sparsity` and `kv_groups` after so many steps."""
        return self._logs(lambda t: min(t.schedule(step), t.began))

    def actual_logs(self) -> dict[str, float]:
        """The same log entries, of the model as it is."""
        return self._logs(lambda t: t.ffn.width)

    def _logs(self, width_of: Callable[[Track], int]) -> dict[str, float]:
        logs = {}
        neurons = [t for t in self.tracks if t.ffn.kind == NEURONS]
        if neurons:
            active = sum(map(width_of, neurons))
            logs["width"] = active / len(neurons)
            logs["sparsity"] = 1 - active / sum(t.schedule.full_dim for t in neurons)
        for kind in [kind for kind in KINDS if kind != NEURONS]:
            sizes = [width_of(t) for t in self.tracks if t.ffn.kind == kind]
            if sizes:
                logs[kind] = sum(sizes) / len(sizes)
        return logs

    def _prune(self, model: keras.Model, step: int = 0, tracing: bool = False) -> None:
        """Sets a pruner to work, on the FFNs as wide as they are now."""
        if self.pruner is None or not self.pruner.try_reuse(
            model, self.tracks, self._method
        ):
            self.pruner = NeuronPruner(self.tracks, self._method)
        self.pruner.attach(model, tracing)

    def _rest(self, model: keras.Model, step: int = 0) -> None:
        """Takes the pruner off; scores and masks stay."""
        if self.pruner is not None and self.pruner.attached:
            self.pruner.detach(model)

    @property
    def learns(self) -> bool:
        """bool, whether masks are being learned in the optimizer's steps."""
        return self._learner is not None and self._learner.begun

    def show_masks(self, model: keras.Model, deterministic: bool) -> None:
        """Shows the masks that are being learned, or draws those to train by.

        `deterministic`: as they would be at the end, for an evaluation or a file.
        """
        if self._learner is None:
            return
        if deterministic:
            self._learner.show()
        else:
            self._learner.draw(as_int(innermost(model.optimizer).iterations))

    def _learn(self, model: keras.Model, step: int) -> None:
        self._rest(model)
        learner = self._learner
        self.pruner = NeuronPruner(self.tracks, self._method, learner)
        self.pruner.attach(model)
        if step > self._begin_step and learner and not learner.continues:
            warn_user(
                f"The masks were to be learned from step {self._begin_step} on, and "
                f"nothing is known of them at step {step}: fewer steps remain. Resume "
                "from a `keras_idea.Checkpoint`, or set a later begin_step."
            )
        self._agenda.postpone(step + 1)  # nothing is learned yet to decide by

    def _decide(self, model: keras.Model, step: int) -> None:
        if self._learner is None:
            decide(self._method, model, self._work)
            return
        learned, self._learner = self._learner.decide(), None
        self._rest(model)  # which gives the kernels back
        decide(self._method, model, self._work, learned)
        self._prune(model)

    @held_back()
    def _narrow(self, model: keras.Model, step: int) -> None:
        check_carriable(model.optimizer)  # it may have been built only now
        last = self._narrow not in self._agenda
        self._rest(model)
        narrow(model, self.tracks, last)
        if not last:
            self._prune(model)
        self.ahead.use_compiled_step(model)


def _check_start(method: Method, start: int, end: int) -> None:
    if start >= end:
        raise ArgumentError(
            f"Method {method.name!r} learns up to step {end} (begin_step + "
            f"prune_steps), but this run begins at step {start}. Begin later."
        )
