"""The neurons of a model, read now and then: who lives, who ranks where."""

import dataclasses

import keras
import numpy as np

from keras_idea.report.neuron_image import NeuronLevels

# Columns of the heat map that are kept; then every other one goes.
_MOST_READINGS = 160


@dataclasses.dataclass(frozen=True)
class Reading:
    """What was seen of one FFN.

    Attributes:
        name: str, its layer's path.
        width: int, neurons alive.
        sparsity: float, the fraction pruned of those it began with.
        importance: float array, of the living; empty once the FFN was compacted.
        churn: int or None, neurons that entered or left the `k` of greatest
            importance since the last reading; None for the first one.
    """

    name: str
    width: int
    sparsity: float
    importance: np.ndarray
    churn: int | None


class NeuronWatch:
    """Reads FFNs and remembers of every neuron when it lived and how it ranked.

    Neurons keep the number that they had at first, also when their FFN was narrowed
    in between.

    Args:
        target_of: function of an `FFN`, the `k` neurons whose changes count; where it
            returns None, the target of its width schedule, or the neurons alive.
    """

    def __init__(self, target_of):
        self._target_of = target_of
        self._memories = {}

    def read(self, ffns, step):
        """Reads the neurons; the model's variables must be in sync.

        Args:
            ffns: list of `FFN` handles, built.
            step: int, the optimizer steps taken.

        Returns:
            List of `Reading`.
        """
        return [self._read(ffn, step) for ffn in ffns]

    def levels(self):
        """List of `NeuronLevels`, one an FFN, of what was read."""
        pairs = self._memories.items()
        return [memory.levels(name) for name, memory in pairs if memory.ranked]

    def _read(self, ffn, step):
        alive = keras.ops.convert_to_numpy(ffn.mask) > 0
        width = int(alive.sum())
        memory = self._memories.get(ffn.name)
        if memory is None:
            memory = self._memories[ffn.name] = _Memory(ffn.full_dim)
        sparsity = 1 - width / memory.full_dim
        if ffn.state.live is None and width == ffn.hidden_dim < ffn.full_dim:
            # All that are left live on: nobody is ranked any more.
            return Reading(ffn.name, width, sparsity, np.zeros(0), None)
        importance = keras.ops.convert_to_numpy(ffn.importance()).astype("float64")
        places, k = ffn.original_indices, self._target(ffn)
        churn = memory.remember(step, places, importance, alive, k)
        return Reading(ffn.name, width, sparsity, importance[alive], churn)

    def _target(self, ffn):
        live = ffn.state.live
        schedule = None if live is None else live.schedule
        scheduled = ffn.width if schedule is None else schedule.target_dim
        return self._target_of(ffn) or scheduled


class _Memory:
    """What is remembered of one FFN."""

    def __init__(self, full_dim):
        self.full_dim = full_dim
        self._top = None
        self._last = None  # importance by first number; -inf: dead
        self._last_step = None
        self._steps, self._levels = [], []
        self._stride, self._skipped = 1, 0

    def remember(self, step, places, importance, alive, k):
        """Notes a reading of the neurons `places`; the churn since the last one."""
        ranked = np.where(alive & ~np.isnan(importance), importance, -np.inf)
        top = set(places[np.argsort(-ranked, kind="stable")[:k]].tolist())
        churn = None if self._top is None else len(top ^ self._top)
        self._top, self._last_step = top, step
        self._last = np.full(self.full_dim, -np.inf)
        # The living before the dead, even one whose importance is no number.
        self._last[places] = np.where(alive, np.nan_to_num(importance), -np.inf)
        if self._skipped % self._stride == 0:
            self._keep()
        self._skipped += 1
        return churn

    @property
    def ranked(self):
        """bool, whether anything was remembered."""
        return self._last is not None

    def levels(self, name):
        """The `NeuronLevels`, with the latest reading as the last column."""
        steps, levels = list(self._steps), list(self._levels)
        if steps[-1:] != [self._last_step]:
            steps.append(self._last_step)
            levels.append(_levels(self._last))
        return NeuronLevels(name, np.array(steps), np.stack(levels))

    def _keep(self):
        self._steps.append(self._last_step)
        self._levels.append(_levels(self._last))
        if len(self._steps) > _MOST_READINGS:
            self._steps, self._levels = self._steps[1::2], self._levels[1::2]
            self._stride *= 2


def _levels(importance):
    """uint8 array: 0 for the dead (-inf), else 1 (least important) to 255."""
    living = np.isfinite(importance)
    rank = np.where(living, importance, np.inf).argsort(kind="stable").argsort()
    most = max(int(living.sum()) - 1, 1)
    return np.where(living, 1 + (254 * rank) // most, 0).astype("uint8")
