"""What a pruning method does in the course of one `fit`."""

import warnings

from keras_idea.methods.method import Job
from keras_idea.surgery.find import student_of
from keras_idea.surgery.probes import (
    attach_probes,
    check_probes,
    detach_probes,
    keep_neurons,
)
from keras_idea.surgery.shrink import renew_functions


class MethodRun:
    """One method at work on the FFNs of one model, from step to step.

    Args:
        method: a `keras_idea.methods.Method`.
        ffns: list of `FFN` handles, all of the model.
        targets: list of int, neurons to keep in each.
        begin_step: int, the last optimizer step at full width.
        prune_steps: int, steps from full width to the target.
        update_every: int, steps between two masks.
    """

    def __init__(self, method, ffns, targets, begin_step, prune_steps, update_every):
        self._method, self._ffns, self._begin_step = method, ffns, begin_step
        self._span = (begin_step, prune_steps)
        #: list of `CubicWidth`, the width of each FFN over the steps.
        self.schedules = [
            method.width_schedule(ffn.full_dim, target, *self._span, update_every)
            for ffn, target in zip(ffns, targets, strict=True)
        ]
        self._alive = [ffn.width for ffn in ffns]
        self._jobs = [
            Job(ffn, index, target, *self._span)
            for index, (ffn, target) in enumerate(zip(ffns, targets, strict=True))
            if ffn.state.tracking and ffn.width > target
        ]
        self._probes: list = []
        self._events: list = []

    @property
    def due_step(self):
        """The optimizer step after which `advance` has something to do, or inf."""
        return self._events[0][0] if self._events else float("inf")

    @property
    def done(self):
        """bool, whether there is nothing left to do."""
        return not self._events

    def begin(self, model, start):
        """Checks what can fail, and gets everything ready.

        Args:
            model: the Keras model that is fitted.
            start: int, the optimizer steps taken so far.

        Raises:
            ValueError: for what the method cannot do.
        """
        decision_step = self._method.decision_step(*self._span)
        if decision_step is None:
            self._begin_layers(model, start)
            return
        if self._jobs:
            self._make_probes(model, start)
        if self._probes and self._adopted():
            self._method.connect([ffn.state.probe for ffn in self._job_ffns()])
        else:
            detach_probes(model, self._ffns)
            if self._probes:
                step = self._method.probe_step(*self._span)
                self._events.append((step, self._attach))
        self._begin_layers(model, start, pruning=False)
        if self._jobs:
            self._events.append((decision_step, self._decide))

    def advance(self, model, step):
        """Does what is due after so many optimizer steps, if anything.

        Args:
            model: the fitted model, its variables in sync.
            step: int, the optimizer steps taken.
        """
        if step >= self.due_step:
            _, action = self._events.pop(0)
            action(model)

    def end(self, model):
        """Leaves the masks as they are, and nothing that goes on pruning."""
        for ffn in self._ffns:
            ffn.state.publish()
            ffn.state.width_schedule = None
        detach_probes(model, self._ffns)
        self._events = []

    def progress(self, step):
        """The log entries `width` and `sparsity` after so many steps."""
        widths = zip(self.schedules, self._alive, strict=True)
        alive = sum(min(schedule(step), alive) for schedule, alive in widths)
        full = sum(schedule.full_dim for schedule in self.schedules)
        return {"width": alive / len(self.schedules), "sparsity": 1 - alive / full}

    def _begin_layers(self, model, start, pruning=True):
        changed = False
        for ffn, schedule in zip(self._ffns, self.schedules, strict=True):
            if ffn.state.tracking:
                self._warn_of_jump(ffn, schedule, start)
                if ffn.state.built:
                    ffn.state.start_at(start)
                schedule = schedule if pruning else None
                changed |= ffn.state.width_schedule != schedule
                ffn.state.width_schedule = schedule
        if changed:
            # The functions of an earlier fit were traced with another schedule.
            renew_functions(model)

    def _warn_of_jump(self, ffn, schedule, start):
        now, due = ffn.width, schedule(start)
        # A run that goes on from a checkpoint has the width of its last step.
        if start > self._begin_step and now > schedule(start - 1):
            warnings.warn(
                f"begin_step={self._begin_step} lies before this run's first step "
                f"({start}): {ffn.name} falls from {now} to {due} neurons at once.",
                stacklevel=2,
            )

    def _job_ffns(self):
        return [job.ffn for job in self._jobs]

    def _make_probes(self, model, start):
        self._method.check(self._jobs, model, start)
        self._probes = self._method.make_probes(self._jobs)
        if self._method.reads_hidden:
            optimizer = model.optimizer if self._probes else None
            check_probes(self._job_ffns(), optimizer, self._method.name)

    def _adopted(self):
        """Whether the FFNs hold just these probes: the model was saved with them."""
        pairs = zip(self._job_ffns(), self._probes, strict=True)
        return all(
            type(ffn.state.probe) is type(probe)
            and ffn.state.probe.get_config() == probe.get_config()
            for ffn, probe in pairs
        )

    def _attach(self, model):
        attach_probes(model, self._job_ffns(), self._probes)
        self._method.connect(self._probes)

    def _decide(self, model):
        decisions = self._method.decide(student_of(model), self._jobs)
        for ffn, decision in zip(self._job_ffns(), decisions, strict=True):
            keep_neurons(ffn, decision)
        detach_probes(model, self._ffns)
