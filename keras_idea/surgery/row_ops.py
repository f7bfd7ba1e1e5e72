"""What each step of a pruning run computes over whole kernels, and how it counts."""

import keras

from keras_idea.functional.importance import reduce_rows, sensitivity
from keras_idea.typing import Tensor

if keras.backend.backend() == "torch":
    from keras_idea.surgery.row_ops_torch import known_count, mean_sensitivity, scale
else:

    def mean_sensitivity(kernel: Tensor, gradient: Tensor, axis: int) -> Tensor:
        """Mean sensitivity `(F,)` of each neuron's weights in a kernel.

        Args:
            kernel: tensor, two axes.
            gradient: tensor of the same shape.
            axis: int, the axis of the neurons.
        """
        return reduce_rows(sensitivity(kernel, gradient), 1 - axis, "mean")

    def scale(variable: keras.Variable, factors: Tensor) -> None:
        """Multiplies a variable by factors that broadcast against it."""
        variable.assign(variable.value * factors)

    def known_count(count: Tensor) -> int | None:
        """A counter's value where reading it waits for nothing, else None.

        It does in a compiled step, which has no number, and on devices other than CPUs.
        """
        return None


__all__ = ["known_count", "mean_sensitivity", "scale"]
