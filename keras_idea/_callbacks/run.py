"""One pruning run of one model: the plan, what is due after which step, the guard."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea import _processes as processes
from keras_idea._finding.budget import plain_parameters
from keras_idea._finding.find import find_groups
from keras_idea._finding.targets import budget_line, target_widths
from keras_idea._graph.configs import check_configs
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, NEURONS
from keras_idea._keras.callbacks import peers, warn_user
from keras_idea._keras.layers import (
    all_layers,
    has_lost_parameters,
    retrack_parameters,
    student_of,
)
from keras_idea._keras.models import has_own_train_step
from keras_idea._keras.optimizer_variables import apply_count, as_int, innermost
from keras_idea._signals import held_back
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner, end_pruning, pruner_of
from keras_idea._step.replicas import scope_of
from keras_idea._surgery.checks import check_compiled, check_trainable
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea._surgery.optimizer_state import check_carriable
from keras_idea._surgery.refit import (
    carry_out_and_refit,
    carry_out_decision,
    check_refit,
)
from keras_idea._surgery.trial import try_groups
from keras_idea.errors import ArgumentError, PruningStopped
from keras_idea.functional.width import narrowing_steps, stored_width
from keras_idea.hub.rebuild import check_plain
from keras_idea.methods.learned_mask import MaskLearner
from keras_idea.methods.method import keep_largest

# A function of the fitted model and the optimizer steps taken.
_Action: TypeAlias = Callable[[keras.Model, int], None]


class PruningRun:
    """A method at work on the groups of one model, from step to step.

    Args:
        prune: IdeaPruneCallback. Its settings.
        model: keras.Model. It is compiled, built and in sync.

    Attributes:
        tracks: list of `Track`, one per group.
        pruner: `NeuronPruner` at work, or None.
    """

    def __init__(self, prune: Any, model: keras.Model) -> None:
        targets = plan_targets(prune, model)
        self._method = method = prune.method
        self._span = span = (prune.begin_step, prune.prune_steps)
        self._start = start = as_int(model.optimizer.iterations)
        # From which on no more units are active than are kept.
        self._end_step = max(prune.end_step, start)
        self.pruner: NeuronPruner | None = None
        self.tracks: list[Track] = []
        decision = method.decision_step(*span)
        for ffn, target in targets:
            ffn.state.score_by(method.scoring)
            ffn.state.target_dim = target  # for callbacks that watch the run
            ffn.state.full_dim = ffn.full_dim
            widths = ffn.full_dim, target, *span, prune.update_every
            schedule = method.width_schedule(*widths)
            self.tracks.append(Track(ffn, schedule, scheduled=decision is None))
        pairs = zip(targets, self.tracks, strict=True)
        self._work = [pair for pair, track in pairs if track.began > pair[1]]
        self._wide = self._sizes(model)
        self._actions: list[tuple[int, _Action]] = []
        narrowings = self._narrowing_steps(prune, model)
        # A model that stays masked is scored to the end.
        if not self._work and not narrowings and prune.compact != "off":
            return
        if decision is not None and self._work:
            groups = [ffn for ffn, _ in self._work]
            method.check(groups)
            if method.refit_data is not None:
                check_refit(model, self._work, method.refit_data)
            learner = method.learner(self._work, *span)
            if learner is not None:
                if start >= decision:
                    raise ArgumentError(
                        f"Method {method.name!r} learns up to step {decision}, but "
                        f"this run begins at step {start}. Raise begin_step."
                    )
                learn = functools.partial(self._learn, learner)
                self._actions.append((span[0], learn))
            self._actions.append((decision, self._decide))
        self._actions += [(step, self._narrow) for step in narrowings]
        self._actions.sort(key=lambda entry: entry[0])
        self._prune(model)

    @property
    def due_step(self) -> float:
        """The optimizer step after which `catch_up` has something to do, or inf."""
        return self._actions[0][0] if self._actions else float("inf")

    @property
    def learner(self) -> MaskLearner | None:
        """What learns masks in the optimizer's steps now, or None."""
        return None if self.pruner is None else self.pruner.learner

    @property
    def _narrowings_left(self) -> bool:
        return any(action == self._narrow for _, action in self._actions)

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

    def verify(self, model: keras.Model, idle: bool = False) -> None:
        """Stops a run that does not do what was planned, with nothing cut.

        It compares the active units with the schedule, when an epoch ends and before
        the model is narrowed. `idle`: an epoch has passed without an optimizer step.
        """
        optimizer, pruner = innermost(model.optimizer), self.pruner
        if pruner is None:
            return
        if pruner_of(optimizer) is not pruner:
            raise PruningStopped(
                f"Something ended the pruning of model '{model.name}'. Pass one "
                "IdeaPruneCallback only, and do not compile the model during `fit`."
            )
        steps = as_int(optimizer.iterations)
        taken, seen = steps - pruner.start, pruner.steps
        # Loss scaling skips steps whose gradients overflow.
        if seen != taken or (idle and model.optimizer is optimizer):
            raise PruningStopped(
                f"The optimizer of '{model.name}' took {taken} steps, and pruning saw "
                f"{seen}. Train only through the optimizer that the model is compiled "
                "with, by functions traced after training began."
            )
        for track in self.tracks:
            ffn, due = track.ffn, track.schedule.full_dim
            if track.scheduled and seen:
                scores = ops.convert_to_numpy(ffn.scores)
                # One that begins as zeros has none in its first steps.
                early = track.schedule(steps) == due and seen < 10
                if not (scores.any() or early) or not np.isfinite(scores).all():
                    raise PruningStopped(
                        f"No finite gradient has reached {ffn.name} in {seen} steps. "
                        "Train it, or leave it out (`groups`)."
                    )
                due = track.schedule(steps)
            elif steps > self._end_step and self.due_step > steps:
                due = track.schedule.target_dim
            if ffn.width > due:
                raise PruningStopped(
                    f"{ffn.name} should have {due} {ffn.units} after {steps} steps and "
                    f"has {ffn.width}. Train it by the model's optimizer."
                )
            if seen and _has_revived(ffn):
                raise PruningStopped(
                    f"Pruned {ffn.units} of {ffn.name} have weights again. Remove the "
                    "optimizer or callback that changes them, or leave it out "
                    "(`groups`)."
                )

    @held_back()
    def end(self, model: keras.Model) -> bool:
        """Leaves the masks as they are; returns whether all was done."""
        self._rest(model)
        done = not self._narrowings_left
        self._actions = []
        return done and all(t.ffn.width <= t.schedule.target_dim for t in self.tracks)

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

    def _prune(self, model: keras.Model, learner: MaskLearner | None = None) -> None:
        """Sets a pruner to work, on the groups as wide as they are now."""
        self.pruner = NeuronPruner(self.tracks, self._method, learner)
        self.pruner.attach(model)

    def _rest(self, model: keras.Model) -> None:
        """Takes the pruner off; scores and masks stay."""
        if self.pruner is not None:
            self.pruner.detach(model)
        self.pruner = None

    def _learn(self, learner: MaskLearner, model: keras.Model, step: int) -> None:
        self._rest(model)
        self._prune(model, learner)
        begin = self._span[0]
        if step > begin and not learner.continues:
            warn_user(
                f"The masks were to be learned from step {begin} on, and nothing is "
                f"known of them at step {step}: fewer steps remain. Resume from a "
                "`keras_idea.Checkpoint`, or set a later begin_step."
            )
        # Nothing is learned yet to decide by.
        self._actions = [(max(due, step + 1), act) for due, act in self._actions]

    def _decide(self, model: keras.Model, step: int) -> None:
        """Masks all units but those that the method keeps."""
        method, student, learner = self._method, student_of(model), self.learner
        groups = [ffn for ffn, _ in self._work]
        if learner is None:
            importance = method.importance(student, groups, None)
            decided = keep_largest(self._work, importance)
        else:
            decided = learner.decide()
            self._rest(model)  # which gives the kernels back
        decisions = list(zip(groups, decided, strict=True))
        if method.refit_data is not None:
            carry_out_and_refit(student, decisions, method.refit_data)
        else:
            with held_back():
                for ffn, decision in decisions:
                    carry_out_decision(ffn, decision)
        if learner is not None:
            self._prune(model)

    @held_back()
    def _narrow(self, model: keras.Model, step: int) -> None:
        last = not self._narrowings_left
        self._rest(model)
        cuts = []
        for track in self.tracks:
            ffn = track.ffn
            width = ffn.width if last else _width_for(track, ffn.width)
            if width < ffn.hidden_dim:
                mask = ops.convert_to_numpy(ffn.mask)
                cuts.append((ffn, stored_neurons(mask, width)))
        narrow_whole(model, cuts)
        if not last:
            self._prune(model)

    def _narrowing_steps(self, prune: Any, model: keras.Model) -> list[int]:
        """The steps after which a run that begins now narrows its model."""
        tracks, start, end = self.tracks, self._start, prune.end_step
        if all(t.ffn.hidden_dim <= t.schedule.target_dim for t in tracks):
            return []

        def done(step: int) -> bool:
            due = [_width_for(track, track.schedule(step)) for track in tracks]
            return all(t.ffn.hidden_dim <= n for t, n in zip(tracks, due, strict=True))

        eager = keras.backend.backend() == "torch" and not model.jit_compile
        schedules = [track.schedule for track in tracks]
        steps = narrowing_steps(prune.compact, schedules, end, eager)
        # A resumed run has the widths of the one that was not stopped.
        steps = [s for s in steps if s > start or s >= end or not done(s)]
        # If pruning is over by the schedule, the next step is the first that can mask.
        late = any(track.began > track.schedule(start) for track in tracks)
        return sorted({max(s, start + 1) if late else s for s in steps})

    def _sizes(self, model: keras.Model) -> tuple[dict[str, str], int]:
        """What is printed of each kind -> its widths; and the parameters."""
        found: dict[str, list[int]] = {}
        for track in self.tracks:
            name = KINDS[track.ffn.kind].width
            found.setdefault(name, []).append(track.ffn.hidden_dim)
        unique = {name: list(dict.fromkeys(widths)) for name, widths in found.items()}
        shown = {name: str(w if len(w) > 1 else w[0]) for name, w in unique.items()}
        return shown, plain_parameters(model)


def stored_neurons(mask: np.ndarray, width: int) -> np.ndarray:
    """Ascending indices of the active units, filled up with pruned ones to `width`."""
    return np.sort(np.argsort(-mask, kind="stable")[..., :width])


def _width_for(track: Track, active: int) -> int:
    return stored_width(active, track.schedule, track.ffn.device_parts)


# They restore weights in ways that the callback cannot follow.
_RESTORING = (keras.callbacks.BackupAndRestore, keras.callbacks.SwapEMAWeights)


def plan_targets(prune: Any, model: keras.Model) -> list[tuple[FFN, int]]:
    """Returns the groups to prune, each with the units to keep.

    Rejects a model that cannot be pruned so.
    """
    for peer in peers(prune):
        if isinstance(peer, _RESTORING):
            raise ArgumentError(
                f"{type(peer).__name__} restores weights, so pruned units would become "
                "active again. Use keras_idea.Checkpoint, or leave it out."
            )
    found, budget = begin_with(model), prune.budget
    ffns = check_trainable(model, found, prune.groups, list(prune.targets))
    targets = target_widths(prune.targets, budget, model, ffns, prune.round_to)
    if budget and (prune.params or {}).get("verbose") and processes.is_first():
        print(budget_line(budget, model, targets))
    for ffn, target in targets:
        _check_target(prune, ffn, target)
    check_configs(model, targets, hub_only=prune.compact == "off")
    if prune.compact != "off":
        check_carriable(model.optimizer)
    _check_length(prune, model)
    _check_has_gradient(prune, model)
    try_groups(model, ffns)
    return targets


def begin_with(model: keras.Model) -> list[FFN]:
    """Builds a model's optimizer, ends pruning that was cut short; returns its groups.

    Rejects a model that is not compiled, or that LoRA or quantization has changed.
    """
    check_compiled(model)
    check_plain(model)
    if not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    found = find_groups(model)
    end_pruning(model, found)  # of a fit that an exception has ended
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    return found


def _check_target(prune: Any, ffn: FFN, target: int) -> None:
    given, parts = prune.targets[ffn.kind], ffn.device_parts
    alone = list(prune.targets) == [NEURONS]
    name = f"{'target_dim' if alone else f'targets[{ffn.kind!r}]'}={given}"
    name = str(prune.budget) if given is None else name
    keeps = f"{name} keeps {target} {ffn.units} of {ffn.name}, which"
    if target > ffn.width:
        raise ArgumentError(f"{keeps} has {ffn.width}. Keep at most {ffn.width}.")
    if prune.compact != "off" and target % parts:
        raise ArgumentError(f"{keeps} {parts} devices share. Keep a multiple of them.")


def _check_length(prune: Any, model: keras.Model) -> None:
    """Rejects pruning that cannot end within the run, if its length is known."""
    params = prune.params or {}
    batches = (params.get("steps") or 0) * (params.get("epochs") or 0)
    if not batches or has_own_train_step(model):
        return
    optimizer = innermost(model.optimizer)
    calls = as_int(apply_count(optimizer)) + batches
    last = calls // (optimizer.gradient_accumulation_steps or 1)
    if prune.end_step > last:
        raise ArgumentError(
            f"Pruning ends at step {prune.end_step}, and this `fit` at {last} steps. "
            "Train for longer, or lower begin_step or prune_steps."
        )


def _check_has_gradient(prune: Any, model: keras.Model) -> None:
    """Rejects a loss at its minimum, whose gradients are rounding errors."""
    distilled = isinstance(model, keras.distillation.Distiller)
    if not distilled or model.student_loss_weight or prune.method.name != "sensitivity":
        return
    teacher, student = model.teacher.get_weights(), model.student.get_weights()
    if len(teacher) == len(student) and all(map(np.array_equal, teacher, student)):
        raise ArgumentError(
            "The student equals its teacher and the labels have no weight, so the loss "
            "has no gradient. Pass weight=0.5 to ki.distiller, or a method with `data`."
        )


def _has_revived(ffn: FFN) -> bool:
    """Whether weights of pruned units are not zero."""
    mask = ffn.mask.value
    if ops.all(mask):
        return False
    # Entries that belong to no unit of this group count as active.
    return any(
        bool(ops.any(ops.where(cut.spread(mask, 1) > 0, 0, cut.variable.value)))
        for cut in ffn.kernel_cuts()
    )
