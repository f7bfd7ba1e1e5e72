"""What a pruning method does in the course of one `fit`."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_idea.functional.importance import memory_steps
from keras_idea.keras_private.layer_walk import student_of
from keras_idea.methods.method import Job, Method
from keras_idea.surgery.find import FFN
from keras_idea.surgery.probes import (
    attach_probes,
    check_calls,
    check_probes,
    detach_probes,
    keep_neurons,
)
from keras_idea.surgery.pruner import NeuronPruner
from keras_idea.surgery.replicas import replicas_of
from keras_idea.surgery.track import Track
from keras_idea.surgery.train_function import mark_train_step
from keras_idea.validation import plural

#: Steps whose scoring takes as long as compiling a step without it; on one core 2.5 s
#: against 0.4 ms a step of 14 (benchmarks/results/peers.md, jax, small).
WORTH_COMPILING = 5_000
#: Steps that are scored first all the same, so that what cannot be ranked is known.
SEEN_STEPS = 10


class MethodRun:
    """One method at work on the FFNs of one model, from step to step.

    Args:
        method: a `keras_idea.methods.Method`.
        targets: list of (`FFN` handle, neurons to keep in it).
        begin_step: int, the last optimizer step at full width.
        prune_steps: int, steps from full width to the target.
        update_every: int, steps between two masks.

    Attributes:
        tracks: list of `Track`, one an FFN.
    """

    def __init__(
        self,
        method: Method,
        targets: Sequence[tuple[FFN, int]],
        begin_step: int,
        prune_steps: int,
        update_every: int,
    ) -> None:
        self._method, self._begin_step = method, begin_step
        self._span = span = (begin_step, prune_steps)
        self._decides = method.decision_step(*span) is not None
        self.tracks: list[Track] = []
        for ffn, target in targets:
            ffn.state.score_by(method.scoring)
            ffn.state.target_dim = target  # for who watches the run
            schedule = method.width_schedule(ffn.full_dim, target, *span, update_every)
            scheduled = not self._decides
            track = Track(ffn, target, schedule, ffn.width, scheduled=scheduled)
            self.tracks.append(track)
        self._work = [track for track in self.tracks if track.began > track.target_dim]
        self._events: list[tuple[int, Callable[[keras.Model, int], None]]] = []
        #: float, the optimizer step from which on no more live than are to be kept.
        self.last_step = float("inf")
        #: The `NeuronPruner` at work, or None.
        self.pruner: NeuronPruner | None = None

    @property
    def due_step(self) -> float:
        """The optimizer step after which `advance` has something to do, or inf."""
        return self._events[0][0] if self._events else float("inf")

    @property
    def has_work(self) -> bool:
        """bool, whether an FFN has more neurons than it is to keep."""
        return bool(self._work)

    @property
    def done(self) -> bool:
        """bool, whether there is nothing left to do."""
        return not self._events

    def begin(
        self,
        model: keras.Model,
        start: int,
        parked: NeuronPruner | None = None,
        tracing: bool = False,
    ) -> None:
        """Checks what can fail, and gets everything ready.

        Args:
            model: the Keras model that is fitted.
            start: int, the optimizer steps taken so far.
            parked: the `NeuronPruner` of an earlier run of this model, or None.
            tracing: bool, whether its train function is being traced.

        Raises:
            ValueError: for what the method cannot do.
        """
        self.last_step = max(self._method.end_step(*self._span), start)
        decision_step = self._method.decision_step(*self._span)
        if decision_step is None:
            self.prune(model, parked, tracing)
            return
        if self._work:
            self._make_probes(model, start)
        if self._measures and all(map(_adopted, self._work)):
            mark_train_step(model)
            self._method.connect([track.ffn.state.probe for track in self._work])
        else:
            detach_probes(model, [track.ffn for track in self.tracks])
            if self._measures:
                step = self._method.probe_step(*self._span)
                self._events.append((step, self._attach))
        self.prune(model, parked, tracing)
        if self._work:
            self._events.append((decision_step, self._decide))

    def wait(self, model: keras.Model, step: int) -> None:
        """Takes the pruner off until scores can matter, if nobody watches them.

        What lies `memory_steps` back has no weight left in a score. Where a step is
        compiled, the program without scores is one more to compile, which pays only in
        a long stage. All by the optimizer's count, so that a run that goes on from a
        checkpoint takes each step with the same program.

        Args:
            model: the fitted model, its variables in sync. Its batches are told of: a
                loop that tells of epochs alone could come too late to go on.
            step: int, the optimizer steps taken.
        """
        memory = memory_steps(self._method.scoring.ema_decay)
        first = self._begin_step - memory - model.steps_per_execution + 1
        compiled = keras.backend.backend() != "torch"
        least = WORTH_COMPILING if compiled else SEEN_STEPS
        if first <= max(least, step):
            return
        # An expert that no token comes to for long is ranked by what lies far back.
        states = [track.ffn.state for track in self.tracks]
        watched = any(s.watched or s.experts is not None for s in states)
        if watched or self._decides or self.pruner is None or not self.pruner.attached:
            return
        self._events = [(first, lambda model, _: self.prune(model, self.pruner))]
        if step >= SEEN_STEPS:
            self.rest(model)
        else:
            self._events.insert(0, (SEEN_STEPS, lambda model, _: self.rest(model)))

    def prune(
        self,
        model: keras.Model,
        parked: NeuronPruner | None = None,
        tracing: bool = False,
    ) -> None:
        """Sets a pruner to work, on the FFNs as wide as they are now."""
        if parked is None or not parked.takes(model, self.tracks):
            parked = NeuronPruner(self.tracks)
        self.pruner = parked
        self.pruner.attach(model, tracing)

    def rest(self, model: keras.Model) -> None:
        """Takes the pruner off; scores and masks stay."""
        if self.pruner is not None and self.pruner.attached:
            self.pruner.detach(model)

    def advance(self, model: keras.Model, step: int) -> None:
        """Does what is due after so many optimizer steps, if anything.

        Args:
            model: the fitted model, its variables in sync.
            step: int, the optimizer steps taken.
        """
        if step >= self.due_step:
            _, action = self._events.pop(0)
            action(model, step)

    def end(self, model: keras.Model) -> None:
        """Leaves the masks as they are, and nothing that goes on pruning."""
        # In this order: the train function that the pruner keeps has no probes in it.
        detach_probes(model, [track.ffn for track in self.tracks])
        self.rest(model)
        self._events = []

    def wider_than_due(self) -> list[FFN]:
        """The FFNs with more neurons than they were to keep."""
        return [track.ffn for track in self._work if track.too_wide]

    def progress(self, step: int) -> dict[str, float]:
        """The log entries `width` and `sparsity` after so many steps."""
        return self._logs([min(t.schedule(step), t.began) for t in self.tracks])

    def seen(self) -> dict[str, float]:
        """The log entries `width` and `sparsity`, of the FFNs as they are."""
        return self._logs([track.ffn.width for track in self.tracks])

    def _logs(self, widths: list[int]) -> dict[str, float]:
        full = sum(track.schedule.full_dim for track in self.tracks)
        return {
            "width": sum(widths) / len(widths),
            "sparsity": 1 - sum(widths) / full,
        }

    def warn_of_jumps(self, start: int) -> None:
        """Warns where the schedule of a run lies behind its first step."""
        if start <= self._begin_step:
            return
        jumps = [
            f"{t.ffn.name} from {t.began} to {plural(t.schedule(start), 'neuron')}"
            for t in self.tracks
            # A run that goes on from a checkpoint has the width of its last step.
            if t.began > t.schedule(start - 1)
        ]
        if jumps:
            more = f" and {len(jumps) - 1} more" if len(jumps) > 1 else ""
            warnings.warn(
                f"begin_step={self._begin_step} lies before this run's first step "
                f"({start}), so the width drops immediately: {jumps[0]}{more}.",
                stacklevel=2,
            )

    @property
    def _measures(self) -> bool:
        return any(track.probe is not None for track in self._work)

    def _jobs(self) -> list[Job]:
        return [
            Job(track.ffn, self.tracks.index(track), track.target_dim, *self._span)
            for track in self._work
        ]

    def _make_probes(self, model: keras.Model, start: int) -> None:
        jobs = self._jobs()
        self._method.check(jobs, model, start)
        probes = self._method.make_probes(jobs)
        for track, probe in zip(self._work, probes, strict=bool(probes)):
            track.probe = probe
        if self._method.reads_hidden:
            optimizer = model.optimizer if probes else None
            name, replicas = self._method.name, replicas_of(model)
            ffns = [track.ffn for track in self._work]
            check_probes(ffns, optimizer, name, replicas)

    def _attach(self, model: keras.Model, step: int) -> None:
        pairs: list[tuple[FFN, Any]] = [(t.ffn, t.probe) for t in self._work]
        attach_probes(model, pairs)
        for _, probe in pairs:
            probe.start_at(step)
        self._method.connect([probe for _, probe in pairs])
        check_calls(student_of(model))

    def _decide(self, model: keras.Model, step: int) -> None:
        decisions = self._method.decide(student_of(model), self._jobs())
        for track, decision in zip(self._work, decisions, strict=True):
            keep_neurons(track.ffn, decision)
        detach_probes(model, [track.ffn for track in self.tracks])


def _adopted(track: Track) -> bool:
    """Whether its FFN holds just this probe: the model was saved with it."""
    present, probe = track.ffn.state.probe, track.probe
    if probe is None or type(present) is not type(probe):
        return False
    return present.get_config() == probe.get_config()
