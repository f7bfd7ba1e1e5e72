"""What a pruning method is asked, and what it answers."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.functional.width import CubicWidth
from keras_idea.groups.state import Scoring
from keras_idea.methods.probe import Probe


@dataclasses.dataclass(frozen=True)
class Job:
    """What a method has to decide for one FFN.

    Attributes:
        ffn: `FFN`. The handle of the FFN, as `keras_idea.find_ffns` returns it.
        index: int. The place of the FFN among the FFNs of the model.
        target_dim: int. Neurons to keep.
        begin_step: int. The last optimizer step at full width.
        prune_steps: int. Steps from full width to the target.
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
        mask: float array in {0, 1}. It has the shape of the FFN's mask: `(hidden_dim,)`
            with exactly `target_dim` ones. For experts, each row has that many.
        scale: float array `(hidden_dim,)` or None. The factor by which the outputs of
            the neurons are multiplied from now on, folded into the rows of down.
            Defaults to None.
    """

    mask: np.ndarray
    scale: np.ndarray | None = None


class Method:
    """Decides which neurons stay; the callback does everything else.

    Subclass it to write your own method. There are two ways to decide:

    - At each step: `decision_step` returns None. The compiled step prunes neurons by
      their scores, and `width_schedule` says how many.
    - Once, on the host: `decision_step` returns a step, and `decide` returns masks.
      Such a method may measure first. From `probe_step` on, a `Probe` is in each FFN,
      and the hidden activations pass through it in every forward pass.

    Attributes:
        name: str. The name of the method in the callback's `method`.
        reads_hidden: bool. Whether the method needs the hidden activations.
        refit_data: dict or None. If what reads the neurons that stay is to be fitted
            when it decides: `data`, `num_samples`, `batch_size` and `padding_mask`, as
            of `Activation`.
        scoring: `Scoring`. How the scores are made that rank the neurons, or that are
            only logged.
    """

    name: str
    reads_hidden = False
    refit_data: dict[str, Any] | None = None
    scoring = Scoring()

    def width_schedule(
        self,
        hidden_dim: int,
        target_dim: int,
        begin_step: int,
        prune_steps: int,
        update_every: int,
    ) -> CubicWidth:
        """Returns the width of a layer over the steps, as the logs show it.

        A method that decides once needs no own version: the width drops with its
        decision.

        Args:
            hidden_dim: int. Neurons of the wide layer.
            target_dim: int. Neurons to keep in the end.
            begin_step: int. The last optimizer step at full width.
            prune_steps: int. Steps from full width to the target.
            update_every: int. Steps between two masks.

        Returns:
            `CubicWidth`.
        """
        decision_step = self.decision_step(begin_step, prune_steps)
        if decision_step is None:
            raise NotImplementedError
        last = max(begin_step, decision_step - 1)
        return CubicWidth(hidden_dim, target_dim, last, prune_steps=1)

    def decision_step(self, begin_step: int, prune_steps: int) -> int | None:
        """int, the optimizer step after which it decides; None: at each step."""
        return None

    def end_step(self, begin_step: int, prune_steps: int) -> int:
        """int, the optimizer step at which pruning is done."""
        decision_step = self.decision_step(begin_step, prune_steps)
        return begin_step + prune_steps if decision_step is None else decision_step

    def probe_step(self, begin_step: int, prune_steps: int) -> int:
        """int, the optimizer step after which its probes are needed."""
        return begin_step

    def check(self, jobs: Sequence[Job], model: keras.Model, start: int) -> None:
        """Raises an error, when `fit` begins, for what could only fail later.

        Args:
            jobs: list of `Job`. The FFNs that are still to be pruned.
            model: keras.Model. The model that is trained.
            start: int. The optimizer steps taken so far.

        Raises:
            ValueError: With a message that says how to fix it.
        """

    def make_probes(self, jobs: Sequence[Job]) -> Sequence[Probe]:
        """Returns one unbuilt probe per job, or an empty list if it needs none."""
        return []

    def connect(self, probes: Sequence[Any]) -> None:
        """Connects the probes of one model with each other, if the method needs it."""

    def decide(self, model: keras.Model, jobs: Sequence[Job]) -> list[Decision]:
        """Decides which neurons stay.

        Args:
            model: keras.Model. The model that is pruned, with its variables in sync.
            jobs: list of `Job`. The probe of a job, if any, is `job.ffn.state.probe`.

        Returns:
            list of `Decision`, one per job.
        """
        raise NotImplementedError
