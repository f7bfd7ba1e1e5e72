"""The neurons of a model, read now and then: who lives, who ranks where."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_idea.callbacks.monitor.event_log import EventLog
from keras_idea.callbacks.monitor.neuron_image import neuron_image
from keras_idea.callbacks.monitor.neuron_lives import NeuronLives, rank_levels
from keras_idea.finding.find import FFN, find_groups
from keras_idea.groups.kinds import NEURONS, KindName

# Columns of the heat map that are kept; then every other one goes.
_MOST_READINGS = 160


@dataclasses.dataclass(frozen=True)
class Reading:
    """What was seen of one FFN."""

    name: str
    width: int  # neurons alive
    sparsity: float  # the fraction pruned of those it began with
    importance: np.ndarray  # of the living; empty once the FFN was compacted
    # Neurons that entered or left the k of greatest importance since the last reading;
    # None for the first one, and once the FFN was compacted. k is the width that
    # pruning aims at, or the neurons alive.
    churn: int | None


def watched_groups(model: keras.layers.Layer) -> list[FFN]:
    """The FFNs of a built model, and the attention layers of which heads are pruned.

    A head that nobody prunes has no state to look at.
    """
    return [
        group
        for group in find_groups(model)
        if group.kind == NEURONS or group.held_state is not None
    ]


class NeuronWatch:
    """Reads FFNs and remembers of every neuron when it lived and how it ranked.

    Neurons keep the number that they had at first, also when their FFN was narrowed
    in between.
    """

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self._dims: list[int] = []

    def narrowed(self, ffns: list[FFN]) -> bool:
        """Whether a narrowing has ended pruning since the last call.

        Only shapes are looked at, so nothing syncs. `ffns` are all of the model.
        """
        before, self._dims = self._dims, [ffn.hidden_dim for ffn in ffns]
        if len(before) != len(ffns) or self._dims == before:
            return False
        return all(ffn.state.active_track is None for ffn in ffns)

    def read(self, ffns: list[FFN], step: int, last: bool = False) -> list[Reading]:
        """Reads the neurons; the model's variables must be in sync.

        `last` ranks the active neurons one last time. Their scores are still those of
        the step that pruned the others.
        """
        return [self._read(ffn, step, last) for ffn in ffns]

    def levels(self) -> list[NeuronLives]:
        """What was read so far, one an FFN."""
        pairs = self._memories.items()
        return [memory.levels(name) for name, memory in pairs if memory.ranked]

    def _read(self, ffn: FFN, step: int, last: bool) -> Reading:
        alive = keras.ops.convert_to_numpy(ffn.mask) > 0
        width = ffn.width
        memory = self._memories.get(ffn.name)
        if memory is None:
            memory = self._memories[ffn.name] = _Memory(ffn.full_dim, ffn.kind)
        sparsity = 1 - width / memory.full_dim
        at_rest = ffn.state.active_track is None and not last
        if at_rest and width == ffn.hidden_dim < ffn.full_dim:
            # All that are left live on: nobody is ranked any more.
            return Reading(ffn.name, width, sparsity, np.zeros(0), None)
        importance = keras.ops.convert_to_numpy(ffn.importance()).astype("float64")
        # Alive, even one whose importance is no number.
        ranked = np.where(alive, np.nan_to_num(importance, nan=-np.inf), np.nan)
        k = ffn.state.target_dim or width
        churn = memory.remember(step, ffn.by_original_index(ranked), k)
        return Reading(ffn.name, width, sparsity, importance[alive], churn)


class _Memory:
    """What is remembered of one FFN."""

    def __init__(self, full_dim: int, kind: KindName) -> None:
        self.full_dim, self._kind = full_dim, kind
        self._top: np.ndarray | None = None
        self._last: Any = None  # importance by first number; NaN: dead
        self._last_step = 0
        self._steps: list[int] = []
        self._levels: list[np.ndarray] = []
        self._stride, self._skipped = 1, 0

    def remember(self, step: int, importance: np.ndarray, k: int) -> int | None:
        """Notes a reading, NaN where dead; the churn of the top k since the last."""
        order = np.argsort(
            np.where(np.isnan(importance), np.inf, -importance), kind="stable"
        )
        best = np.zeros(importance.shape, bool)
        np.put_along_axis(best, order[..., :k], True, axis=-1)
        churn = None if self._top is None else int((best != self._top).sum())
        self._top, self._last_step, self._last = best, step, importance
        if self._skipped % self._stride == 0:
            self._keep()
        self._skipped += 1
        return churn

    @property
    def ranked(self) -> bool:
        """bool, whether anything was remembered."""
        return self._last is not None

    def levels(self, name: str) -> NeuronLives:
        """All readings that are kept, and the latest one."""
        steps, levels = list(self._steps), list(self._levels)
        if steps[-1:] != [self._last_step]:
            steps.append(self._last_step)
            levels.append(rank_levels(self._last).ravel())
        return NeuronLives(name, np.array(steps), np.stack(levels), self._kind)

    def _keep(self) -> None:
        self._steps.append(self._last_step)
        self._levels.append(rank_levels(self._last).ravel())
        if len(self._steps) > _MOST_READINGS:
            self._steps, self._levels = self._steps[1::2], self._levels[1::2]
            self._stride *= 2


class NeuronLog:
    """Reads the neurons now and then, and writes what was seen.

    `watch` remembers the fits before this one.
    """

    def __init__(self, log: EventLog, watch: NeuronWatch) -> None:
        self._log, self._watch = log, watch
        self._readings = 0

    def read(self, ffns: list[FFN], step: int, last: bool = False) -> None:
        """Reads the neurons and writes it; the model must be in sync.

        `last`: see `NeuronWatch.read`.
        """
        readings = self._watch.read(ffns, step, last)
        self._readings += 1
        values: dict[str, float | None] = {}
        for reading in readings:
            values[f"width/{reading.name}"] = reading.width
            values[f"sparsity/{reading.name}"] = reading.sparsity
            values[f"churn/{reading.name}"] = reading.churn
            known = reading.importance[np.isfinite(reading.importance)]
            tag = f"importance_log10/{reading.name}"
            self._log.histogram(step, tag, np.log10(known[known > 0]))
        churn = [reading.churn for reading in readings if reading.churn is not None]
        values["churn/mean"] = float(np.mean(churn)) if churn else None
        self._log.scalars(step, values)
        # Fewer images the longer it takes: each shows everything so far.
        if self._readings % max(1, self._readings // 16) == 0:
            self.draw(step)

    def draw(self, step: int) -> None:
        """Writes the heat map of everything read so far, if there is anything."""
        lives = self._watch.levels()
        if lives:
            self._log.image(step, "neurons", neuron_image(lives))
