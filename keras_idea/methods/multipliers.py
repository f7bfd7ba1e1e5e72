"""The two Lagrange multipliers of a sparsity constraint, which ascend."""

import keras
from keras import ops

from keras_idea.functional.adam import adam_step
from keras_idea.functional.hard_concrete import hard_concrete_ascent
from keras_idea.methods.probe import Overwritten, Tensors, overwriting
from keras_idea.schedules.learning_rate import CosineDecay
from keras_idea.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_idea")
class Multipliers(Overwritten):
    """The multipliers of `hard_concrete_lagrangian`; they start at 0.

    They rise by Adam in the backward pass of `tap`, at a rate that falls by a cosine
    to 0 over `prune_steps`.
    """

    arguments = ("learning_rate", "prune_steps")

    def __init__(
        self, learning_rate: float, prune_steps: int, name: str = "multipliers"
    ) -> None:
        super().__init__(name=name, dtype="float32")
        self.learning_rate = learning_rate
        self.prune_steps = prune_steps

    def build(self) -> None:
        """Makes the multipliers and their moments."""
        self._values = self.add_overwritten("values", (2,))
        self._moments = self.add_overwritten("moments", (2, 2))
        self.built = True

    @property
    def values(self) -> Tensor:
        """The two multipliers, a constant to the gradients."""
        return ops.stop_gradient(self._values.value)

    def tap(
        self, activations: Tensor, sparsity: Tensor, target: Tensor, elapsed: Tensor
    ) -> Tensor:
        """The activations unchanged; backward, the multipliers go up a step.

        `sparsity` and `target` are `(N,)`, one a layer; `elapsed` are the steps taken.
        """
        rate = CosineDecay(self.learning_rate, 0.0, self.prune_steps)
        ascent = hard_concrete_ascent(sparsity, target)
        variables = self._values.value, self._moments.value

        def update(
            upstream: Tensor, activations: Tensor, values: Tensors, constants: Tensors
        ) -> Tensors:
            (multipliers, moments), (ascent, elapsed) = values, constants
            step = elapsed + 1.0
            return adam_step(multipliers, ascent, moments, step, -rate(elapsed))

        return overwriting(activations, variables, (ascent, elapsed), update)
