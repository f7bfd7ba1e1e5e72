"""What a pruning method is asked, and what it answers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.layers.neuron_state import Scoring
from keras_idea.methods.probe import Probe
from keras_idea.schedules.width import CubicWidth


@dataclasses.dataclass(frozen=True)
class Job:
    """What a method has to do with one FFN.

    Attributes:
        ffn: handle of it, as `keras_idea.find_ffns` gives.
        index: int, its place among the FFNs of the model.
        target_dim: int, neurons to keep.
        begin_step: int, the last optimizer step at full width.
        prune_steps: int, steps from full width to the target.
    """

    ffn: Any
    index: int
    target_dim: int
    begin_step: int
    prune_steps: int


@dataclasses.dataclass(frozen=True)
class Decision:
    """Which neurons of one FFN stay.

    Attributes:
        mask: float array in {0, 1}, shaped as the FFN's mask: `(hidden_dim,)` with
            exactly `target_dim` ones; of experts as many in each row.
        scale: None, or float array `(hidden_dim,)`: what the neurons' outputs are
            multiplied by from now on, folded into the rows of down.
    """

    mask: np.ndarray
    scale: np.ndarray | None = None


class Method:
    """How the neurons that stay are found; the callback does everything else.

    Either neurons go by `width_schedule` inside the compiled step, as their scores rank
    them (`decision_step` is None), or the method decides once, on the host.
    Then it may measure first: from `probe_step` on, a `Probe` sits in each FFN, which
    the hidden activations pass through in every forward pass.

    Attributes:
        name: str, what the callback's `method` calls it.
        reads_hidden: bool, whether it needs the hidden activations.
        scoring: `Scoring`, how the scores are made that rank the neurons, or that are
            only shown.
    """

    name: str
    reads_hidden = False
    scoring = Scoring()

    def width_schedule(
        self,
        hidden_dim: int,
        target_dim: int,
        begin_step: int,
        prune_steps: int,
        update_every: int,
    ) -> CubicWidth:
        """The width of a layer over the steps, as the logs tell it.

        Of a method that decides once it is given: it falls with the decision.

        Args:
            hidden_dim: int, neurons of the enlarged layer.
            target_dim: int, neurons to keep in the end.
            begin_step: int, the last optimizer step at full width.
            prune_steps: int, steps from full width to the target.
            update_every: int, steps between two masks.

        Returns:
            `CubicWidth`.
        """
        decision_step = self.decision_step(begin_step, prune_steps)
        if decision_step is None:
            raise NotImplementedError
        last = max(begin_step, decision_step - 1)
        return CubicWidth(hidden_dim, target_dim, last, prune_steps=1)

    def decision_step(self, begin_step: int, prune_steps: int) -> int | None:
        """int, the optimizer step after which it decides; None: each step does."""
        return None

    def end_step(self, begin_step: int, prune_steps: int) -> int:
        """int, the optimizer step at which pruning is done."""
        decision_step = self.decision_step(begin_step, prune_steps)
        return begin_step + prune_steps if decision_step is None else decision_step

    def probe_step(self, begin_step: int, prune_steps: int) -> int:
        """int, the optimizer step after which its probes are needed."""
        return begin_step

    def check(self, jobs: Sequence[Job], model: keras.Model, start: int) -> None:
        """Refuses, when `fit` begins, what could only fail later.

        Args:
            jobs: list of `Job`, the FFNs that are still to be pruned.
            model: the Keras model that is fitted.
            start: int, the optimizer steps taken so far.

        Raises:
            ValueError: saying how to mend it.
        """

    def make_probes(self, jobs: Sequence[Job]) -> Sequence[Probe]:
        """List of a probe for each job, not built yet; empty: it needs none."""
        return []

    def connect(self, probes: Sequence[Any]) -> None:
        """Makes the probes of one model know each other, if they must."""

    def decide(self, model: keras.Model, jobs: Sequence[Job]) -> list[Decision]:
        """Decides which neurons stay.

        Args:
            model: the Keras model that is pruned, its variables in sync.
            jobs: list of `Job`; its probe, if any, is `job.ffn.state.probe`.

        Returns:
            list of `Decision`, one for each job.
        """
        raise NotImplementedError
