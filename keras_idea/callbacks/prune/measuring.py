"""What a method that decides once does in a run: it may measure, and decides."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.finding.find import FFN
from keras_idea.keras_private.layers import student_of
from keras_idea.methods.method import Job, Method, places_of
from keras_idea.signals import held_back
from keras_idea.step.replicas import replicas_of
from keras_idea.step.track import Track
from keras_idea.step.train_function import mark_train_step
from keras_idea.surgery.probes import (
    attach_probes,
    carry_out_decision,
    check_calls,
    check_probes,
    detach_probes,
)
from keras_idea.surgery.refit import carry_out_and_refit, check_data, check_refit


class Measuring:
    """The probes of one method that decides once, in the FFNs of one model."""

    def __init__(
        self,
        method: Method,
        tracks: Sequence[Track],
        span: tuple[int, int],
        found: Sequence[FFN],
    ) -> None:
        self._method, self._tracks, self._span = method, tracks, span
        self._places = dict(zip(map(id, found), places_of(found), strict=True))
        self._work = [track for track in tracks if track.has_work]

    @property
    def measures(self) -> bool:
        """bool, whether the method looks at hidden activations before it decides."""
        return any(track.probe is not None for track in self._work)

    def begin(self, model: keras.Model, start: int) -> bool:
        """Checks what can fail, and makes the probes.

        Returns:
            bool, whether `attach` is still to be called: the model was not saved with
            these probes in it.
        """
        if self._work:
            self._make_probes(model, start)
        if self.measures and all(_adopted(track, start) for track in self._work):
            mark_train_step(model)
            self._method.connect([track.ffn.state.probe for track in self._work])
            return False
        self.end(model)
        return self.measures

    def attach(self, model: keras.Model, step: int) -> None:
        """Hangs the probes into the FFNs, after so many optimizer steps."""
        pairs: list[tuple[FFN, Any]] = [(t.ffn, t.probe) for t in self._work]
        attach_probes(model, pairs)
        for _, probe in pairs:
            probe.start_at(step)
        self._method.connect([probe for _, probe in pairs])
        check_calls(student_of(model))

    def decide(self, model: keras.Model) -> None:
        """Masks all neurons but those that the method keeps."""
        student, samples = student_of(model), self._method.refit_data
        ffns = [track.ffn for track in self._work]
        decided = self._method.decide(student, self._jobs())
        decisions = list(zip(ffns, decided, strict=True))
        if samples is not None:
            carry_out_and_refit(student, decisions, samples)
        else:
            with held_back():
                for ffn, decision in decisions:
                    carry_out_decision(ffn, decision)
        self.end(model)

    def end(self, model: keras.Model) -> None:
        """Takes the probes off, if there are any."""
        detach_probes(model, [track.ffn for track in self._tracks])

    def _jobs(self) -> list[Job]:
        return [
            Job(track.ffn, self._places[id(track.ffn)], track.target_dim, *self._span)
            for track in self._work
        ]

    def _make_probes(self, model: keras.Model, start: int) -> None:
        jobs = self._jobs()
        self._method.check(jobs, model, start)
        probes = self._method.make_probes(jobs)
        for track, probe in zip(self._work, probes, strict=bool(probes)):
            track.probe = probe
        ffns = [track.ffn for track in self._work]
        if self._method.reads_hidden:
            optimizer = model.optimizer if probes else None
            check_probes(ffns, optimizer, self._method.name, replicas_of(model))
        if self._method.refit_data is not None:
            check_refit(ffns, model.optimizer, replicas_of(model))
            targets = [(track.ffn, track.target_dim) for track in self._work]
            check_data(student_of(model), targets, self._method.refit_data)


def _adopted(track: Track, start: int) -> bool:
    """Whether its FFN holds just this probe, and it has seen all steps so far."""
    present, probe = track.ffn.state.probe, track.probe
    if probe is None or type(present) is not type(probe):
        return False
    return present.get_config() == probe.get_config() and present.steps == start
