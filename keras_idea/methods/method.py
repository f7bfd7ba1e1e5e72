"""What a pruning method is asked, and what it answers."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.functional.masks import top_k_mask
from keras_idea.functional.width import CubicWidth, WidthSchedule
from keras_idea.groups.state import Scoring
from keras_idea.methods.calibration import Calibration
from keras_idea.methods.probe import Probe
from keras_idea.typing import Tensor


class Gradients(Protocol):
    """The gradients that one optimizer step is made with."""

    def of(self, variable: keras.Variable) -> Tensor:
        """The gradient of a variable; zeros where the loss does not depend on it."""

    def sensitivities(self, ffn: Any) -> Tensor:
        """The `|gradient * weight|` of an FFN, shaped as its scores."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What a method has to decide for one FFN.

    Attributes:
        ffn: `FFN`. The handle of the FFN, as `keras_idea.find_ffns` returns it.
        index: int. The place of the FFN among those of its kind in the model.
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

    - At each step: `decision_step` returns None. The compiled step calls `score`, and
      prunes neurons by the moving averages of the scores; a cubic says how many.
      `shrink` ranks neurons by the mean score over its data.
    - Once, on the host: `decision_step` returns a step, and `decide` returns masks. By
      default it keeps the neurons of the largest `importance`, by which `shrink`
      ranks them too. Such a method may measure during training. From
      `probe_step` on, a `Probe` is in each FFN, and the hidden activations pass through
      it in every forward pass.

    Attributes:
        name: str. The name of the method in the callback's `method`.
        reads_hidden: bool. Whether the method needs the hidden activations.
        refit_data: `Calibration` or None. The data to refit, when it decides, the
            layers that read the kept neurons. None means no refit.
        scoring: `Scoring`. How the scores are made that rank the neurons, or that are
            only logged.
    """

    name: str
    reads_hidden = False
    refit_data: Calibration | None = None
    scoring = Scoring()

    def width_schedule(
        self,
        hidden_dim: int,
        target_dim: int,
        begin_step: int,
        prune_steps: int,
        update_every: int,
    ) -> WidthSchedule:
        """Returns the width of a layer over the steps, as the logs show it.

        The paper's cubic; of a method that decides once, the width drops with its
        decision.

        Args:
            hidden_dim: int. Neurons of the wide layer.
            target_dim: int. Neurons to keep in the end.
            begin_step: int. The last optimizer step at full width.
            prune_steps: int. Steps from full width to the target.
            update_every: int. Steps between two masks.

        Returns:
            `WidthSchedule`.
        """
        decision_step = self.decision_step(begin_step, prune_steps)
        if decision_step is None:
            span = begin_step, prune_steps
            return CubicWidth(hidden_dim, target_dim, *span, update_every)
        last = max(begin_step, decision_step - 1)
        return CubicWidth(hidden_dim, target_dim, last, prune_steps=1)

    def score(self, ffn: Any, gradients: Gradients) -> Tensor:
        r"""Measures the neurons of one FFN in one step, inside the compiled step.

        $$T_{ij} = |g_{ij} \, w_{ij}|$$

        reduced over the weights of each neuron, as Algorithm 1 does. The scores are
        moving averages of it, with `scoring.ema_decay`.

        Args:
            ffn: `FFN`. The handle, with the weights before the step.
            gradients: `Gradients`. `gradients.of(variable)` is the gradient of any
                trained variable in this step.

        Returns:
            Tensor `(hidden_dim,)`: one number for each neuron; or `(M, hidden_dim)`:
            one for each of its M kernels, of which `scoring.matrix_reduce` makes one.
            What is not finite was not measured and leaves the score as it was.
        """
        return gradients.sensitivities(ffn)

    def importance(
        self, model: keras.Model, groups: Sequence[Any], samples: Calibration | None
    ) -> list[Tensor] | None:
        """Ranks units on the host, without training.

        `shrink` calls it, and `decide` unless it is overridden.

        Args:
            model: keras.Model. The model, with its variables in sync.
            groups: list of `FFN`. The handles whose units are ranked.
            samples: `Calibration` or None. The data of `shrink`, if any.

        Returns:
            list of tensors `(hidden_dim,)`, finite, one for each group: the larger, the
            more important. Defaults to None: `shrink` takes the mean of `score`
            over the data.
        """
        return None

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
        """Decides which neurons stay: those of the largest `importance`.

        Args:
            model: keras.Model. The model that is pruned, with its variables in sync.
            jobs: list of `Job`. The probe of a job, if any, is `job.ffn.state.probe`.

        Returns:
            list of `Decision`, one per job.
        """
        importance = self.importance(model, [job.ffn for job in jobs], None)
        if importance is None:
            raise NotImplementedError("Override either `importance` or `decide`")
        return keep_largest(jobs, importance)


def places_of(groups: Sequence[Any]) -> list[int]:
    """Counts each group among those of its kind, so that other kinds move none."""
    counts: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)
    return [next(counts[group.kind]) for group in groups]


def keep_largest(jobs: Sequence[Job], importance: Sequence[Tensor]) -> list[Decision]:
    """Keeps the most important of the neurons that are active, for each job."""
    decisions = []
    for job, values in zip(jobs, map(_whole, importance), strict=True):
        bad = int((~np.isfinite(ops.convert_to_numpy(values))).sum())
        if bad:
            raise ArgumentError(
                f"The importance of the {job.ffn.units} of {job.ffn.name} cannot rank "
                f"them: some are NaN or infinite. Received: {bad} such entries. Check "
                "the model's weights; a method of your own must return finite numbers."
            )
        mask = top_k_mask(values, job.target_dim, alive=job.ffn.mask.value)
        decisions.append(Decision(ops.convert_to_numpy(mask)))
    return decisions


def _whole(values: Tensor) -> Tensor:
    """Computed from weights that lie on several machines: whole on each of them."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return values
    layout = keras.distribution.TensorLayout(
        [None] * len(values.shape), distribution.device_mesh
    )
    return keras.distribution.distribute_tensor(values, layout)
