"""Defines a pruning method: what the callback and `shrink` ask it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
from keras import ops

from keras_idea._groups.cut import Cut
from keras_idea._groups.state import Scoring
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.functional.masks import top_k_mask
from keras_idea.functional.width import CubicWidth
from keras_idea.methods.calibration import Samples


class Gradients(Protocol):
    """The gradients that one optimizer step is made with."""

    def of(self, variable: keras.Variable) -> Tensor:
        """Returns a variable's gradient; zeros if the loss does not depend on it."""

    def sensitivities(self, ffn: Any) -> Tensor:
        """Returns the `|gradient * weight|` of an FFN, shaped as its scores."""

    def by_units(self, cuts: Sequence[Cut], weights: Mapping[int, Tensor]) -> Tensor:
        """Sums gradient * weight over each unit's entries, of this call."""


@dataclasses.dataclass(frozen=True)
class Decision:
    """Which units of one group stay.

    Attributes:
        mask: float array in {0, 1}, shaped as the group's mask.
        scale: float array of the same shape, or None. The factor of each unit, folded
            into the kernel that reads it. Defaults to None.
    """

    mask: np.ndarray
    scale: np.ndarray | None = None


class Method:
    """Decides which neurons stay; the callback does everything else.

    Subclass it to write your own method, and override one of two functions:

    - `score` measures the neurons in each optimizer step. The callback prunes by the
      moving averages of the scores; a cubic says how many. `shrink` ranks neurons by
      the mean score over its data.
    - `importance` ranks the neurons on data, without training. Also return a step from
      `decision_step`: the callback then prunes all at once after that step.

    Attributes:
        name: str. The name of the method in the callback's `method`.
        refit_data: `Samples` or None. The data to refit, when it decides, the
            layers that read the kept neurons. None means no refit.
        scoring: `Scoring`. How the scores are made that rank the neurons, or that are
            only logged.
    """

    name: str
    refit_data: Samples | None = None
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

        The paper's cubic; if the method decides once, the width drops at that step.
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
        self, model: keras.Model, groups: Sequence[Any], samples: Samples | None
    ) -> list[Tensor] | None:
        """Ranks units on the host, without training.

        Args:
            model: keras.Model. The model, with its variables in sync.
            groups: list of `FFN`. The handles whose units are ranked.
            samples: `Samples` or None. The data of `shrink`, if any.

        Returns:
            list of tensors `(hidden_dim,)`, finite, one for each group: the larger, the
            more important. Defaults to None: `shrink` takes the mean of `score` over
            the data.
        """
        return None

    def decision_step(self, begin_step: int, prune_steps: int) -> int | None:
        """int, the optimizer step after which it decides; None: at each step."""
        return None

    def end_step(self, begin_step: int, prune_steps: int) -> int:
        """int, the optimizer step at which pruning is done."""
        decision_step = self.decision_step(begin_step, prune_steps)
        return begin_step + prune_steps if decision_step is None else decision_step

    def check(self, groups: Sequence[Any]) -> None:
        """Raises an error, when `fit` begins, for groups that it cannot rank."""

    def learner(
        self, targets: Sequence[tuple[Any, int]], begin_step: int, prune_steps: int
    ) -> Any:
        """Returns what learns masks in the steps from `begin_step` on, or None.

        Only `LearnedMask` has one. `targets` are pairs of an `FFN` and what it keeps.
        """
        return None


def keep_largest(
    targets: Sequence[tuple[Any, int]], importance: Sequence[Tensor] | None
) -> list[Decision]:
    """Keeps the most important of the units that are active, for each group."""
    if importance is None:
        raise NotImplementedError("A method that decides once needs `importance`")
    decisions = []
    for (ffn, target_dim), values in zip(targets, importance, strict=True):
        values = _whole(values)
        if not np.isfinite(ops.convert_to_numpy(values)).all():
            raise ArgumentError(
                f"The importance of the {ffn.units} of {ffn.name} cannot rank them: "
                "some entries are NaN or infinite. Check the model's weights."
            )
        mask = top_k_mask(values, target_dim, alive=ffn.mask.value)
        decisions.append(Decision(ops.convert_to_numpy(mask)))
    return decisions


def _whole(values: Tensor) -> Tensor:
    """Gathers values computed from weights that are on several machines."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return values
    layout = keras.distribution.TensorLayout(
        [None] * len(values.shape), distribution.device_mesh
    )
    return keras.distribution.distribute_tensor(values, layout)
