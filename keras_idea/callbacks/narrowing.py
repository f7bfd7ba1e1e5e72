"""When one `fit` makes its model physically narrower, and which neurons go."""

from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np

from keras_idea.callbacks.compile_ahead import CompileAhead, Milestone, pays
from keras_idea.callbacks.method_run import MethodRun
from keras_idea.schedules.milestones import milestones, physical_width
from keras_idea.schedules.width import CubicWidth
from keras_idea.surgery.find import FFN
from keras_idea.surgery.optimizer_state import check_carriable
from keras_idea.surgery.own_config import follow_widths
from keras_idea.surgery.shrink import narrow_to, refresh_graphs
from keras_idea.surgery.track import Track

#: What `compact` of the pruning callback may be.
Compact = Literal["end", "progressive", "off"]
COMPACT: tuple[Compact, ...] = ("end", "progressive", "off")


def narrowing_steps(
    compact: Compact,
    schedules: Sequence[CubicWidth],
    end_step: int,
    eager: bool = False,
) -> list[int]:
    """The optimizer steps after which a model becomes narrower.

    Args:
        compact: "end", "progressive" or "off".
        schedules: list of `CubicWidth`, one an FFN.
        end_step: int, the step at which pruning is done.
        eager: bool, whether no step is compiled. Default False.

    Returns:
        Ascending list of int. After the last one there is nothing left to prune.
    """
    if compact == "off":
        return []
    if compact == "end":
        return [end_step]
    return milestones(schedules, end_step, eager)


def compaction_widths(
    compact: Compact,
    schedule: CubicWidth,
    end_step: int,
    parts: int = 1,
    eager: bool = False,
) -> dict[int, int]:
    """How wide a model is from each of its compactions on.

    Args:
        compact: "end", "progressive" or "off".
        schedule: `CubicWidth`, of its FFNs.
        end_step: int, the step at which pruning is done.
        parts: int, devices that share an FFN's neurons. Default 1.
        eager: bool, whether no step is compiled. Default False.

    Returns:
        dict of the optimizer step after which it becomes narrower to the neurons of an
        FFN from there on; ascending.
    """
    steps = narrowing_steps(compact, [schedule], end_step, eager)
    widths = {step: _width(schedule(step), schedule, parts) for step in steps}
    # Methods that decide once have a schedule that falls one step later.
    return {**widths, **dict.fromkeys(steps[-1:], schedule.target_dim)}


def neurons_to_keep(mask: np.ndarray, width: int) -> np.ndarray:
    """The living neurons, filled up with dead ones where there are fewer.

    Args:
        mask: float array `(hidden_dim,)` in {0, 1}, the living; of experts
            `(experts, hidden_dim)`.
        width: int, at least as many as live.

    Returns:
        int array `(width,)`, ascending indices; of experts `(experts, width)`.

    Example:
    >>> neurons_to_keep(np.array([0.0, 1.0, 0.0, 1.0]), width=3)
    array([0, 1, 3])
    """
    return np.sort(np.argsort(-mask, kind="stable")[..., :width])


class Narrowing:
    """Makes the model of one `fit` narrower, between two batches.

    Neurons that are masked never come back, so which step takes them out changes
    nothing of what the model computes. The living keep their scores and go on being
    ranked; after the last step there is nothing left to rank.

    Args:
        compact: "end", "progressive" or "off".
        tracks: list of `Track`, of the FFNs that are pruned.
        end_step: int, the optimizer step at which pruning is done.
        start: int, the optimizer steps taken so far.
        eager: bool, whether no step is compiled. Default False.
        ahead: `CompileAhead`, which compiles the steps to come; or None.
    """

    def __init__(
        self,
        compact: Compact,
        tracks: Sequence[Track],
        end_step: int,
        start: int,
        eager: bool = False,
        ahead: CompileAhead | None = None,
    ) -> None:
        self._tracks = tracks
        self._steps: list[int] = []
        if any(track.ffn.hidden_dim > track.target_dim for track in tracks):
            schedules = [track.schedule for track in tracks]
            steps = narrowing_steps(compact, schedules, end_step, eager)
            # A resumed run has the widths of the one that was not stopped.
            steps = [s for s in steps if s > start or not self._done(s, end_step)]
            # Of a run whose pruning lies behind it: the next step is the first to mask.
            late = any(track.began > track.schedule(start) for track in tracks)
            self._steps = sorted({max(s, start + 1) if late else s for s in steps})
        self._ahead = ahead or CompileAhead()
        if ahead is not None:
            ahead.begin(self._milestones())

    @classmethod
    def of(
        cls,
        prune: keras.callbacks.Callback,
        run: MethodRun,
        start: int,
        ahead: CompileAhead,
    ) -> "Narrowing":
        """That of a pruning callback whose `fit` begins after `start` steps."""
        eager = keras.backend.backend() == "torch" and not prune.model.jit_compile
        wanted = ahead if pays(prune.compile_ahead) else None
        return cls(prune.compact, run.tracks, prune.end_step, start, eager, wanted)

    @property
    def due_step(self) -> float:
        """The optimizer step after which `advance` has something to do, or inf."""
        return self._steps[0] if self._steps else float("inf")

    @property
    def done(self) -> bool:
        """bool, whether there is nothing left to cut out."""
        return not self._steps

    def can_prepare(self, model: keras.Model | None, step: int) -> bool:
        """bool, whether there is something for `prepare` to do after so many steps."""
        return model is not None and self._ahead.ready(model, step)

    def prepare(self, model: keras.Model) -> None:
        """Begins to compile what will be needed next; the model's state is in sync."""
        self._ahead.advance(model)

    def advance(self, model: keras.Model, step: int, run: MethodRun) -> None:
        """Cuts out what is dead, with the pruner off; it goes on if there is more.

        Args:
            model: the fitted model, its variables in sync.
            step: int, the optimizer steps taken.
            run: `MethodRun`, which has the pruner.
        """
        check_carriable(model.optimizer)  # it may have been built only now
        last = self._ends_at(step)
        self._steps = [later for later in self._steps if later > step]
        run.rest(model)
        narrow_to(model, self._cuts(last))
        if last:
            ffns = [track.ffn for track in self._tracks]
            follow_widths(model, {(ffn.full_dim, ffn.hidden_dim) for ffn in ffns})
            refresh_graphs(model, ffns)
        else:
            run.prune(model)
        self._ahead.take_over(model)

    def end(self) -> None:
        """Compiles nothing more."""
        self._ahead.end()

    def _ends_at(self, step: int) -> bool:
        """Whether the last narrowing is due after so many steps."""
        return bool(self._steps) and step >= self._steps[-1]

    def _milestones(self) -> list[Milestone]:
        """What is left to do, by what the schedules say."""
        return [
            (
                step,
                [(track.ffn, self._planned(track, step)) for track in self._tracks],
                self._ends_at(step),
            )
            for step in self._steps
        ]

    def _done(self, step: int, end_step: int) -> bool:
        """Whether an earlier part of the run has narrowed the model after `step`."""
        return step < end_step and all(
            track.ffn.hidden_dim <= _dim_for(track, track.schedule(step))
            for track in self._tracks
        )

    def _planned(self, track: Track, step: int) -> int:
        if self._ends_at(step):  # methods that decide once fall one step later
            return track.target_dim
        return min(track.ffn.hidden_dim, _dim_for(track, track.schedule(step)))

    def _cuts(self, last: bool) -> list[tuple[FFN, np.ndarray]]:
        """List of (FFN, indices to keep) of those that are wider than they need be."""
        cuts = []
        for track in self._tracks:
            ffn = track.ffn
            width = ffn.width if last else _dim_for(track, ffn.width)
            if width < ffn.hidden_dim:
                mask = keras.ops.convert_to_numpy(ffn.mask)
                cuts.append((ffn, neurons_to_keep(mask, width)))
        return cuts


def _dim_for(track: Track, active: int) -> int:
    return _width(active, track.schedule, track.ffn.device_parts)


def _width(alive: int, schedule: CubicWidth, parts: int = 1) -> int:
    width = physical_width(alive, schedule.full_dim, schedule.target_dim)
    return -(-width // parts) * parts
