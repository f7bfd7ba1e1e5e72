"""Statistics of activations, gathered by the way in the train step."""

import keras
import numpy as np
from keras import ops

from keras_idea.functional.activation import Aggregation, activation_sums
from keras_idea.methods.probe import Probe, Tensors, overwriting
from keras_idea.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_idea")
class GatherProbe(Probe):
    """Adds up the activations of the last training samples before a step.

    It lets the activations through as they are. A token on which nothing in the
    loss depends (its gradient is exactly zero for every neuron) counts as padding:
    padded positions that the loss leaves out are such, wherever the mask was given.
    A batch with an activation that is not finite is left out; none is split.
    """

    arguments = ("hidden_dim", "num_samples", "begin_step", "aggregation")

    def __init__(
        self,
        hidden_dim: int,
        num_samples: int,
        begin_step: int,
        aggregation: Aggregation,
        name: str = "gather_probe",
    ) -> None:
        super().__init__(name=name, dtype="float32")
        self.hidden_dim = hidden_dim
        self.num_samples = num_samples
        self.begin_step = begin_step
        self.aggregation = aggregation

    def build(self) -> None:
        """Makes the variables."""
        super().build()
        self._sums = self.add_overwritten("sums", (self.hidden_dim,))
        self._samples = self.add_overwritten("samples", ())

    def tap(
        self, activations: Tensor, training: bool = True, mask: Tensor | None = None
    ) -> Tensor:
        """The activations unchanged; see `Probe`."""
        if not training:
            return activations
        batch = ops.cast(ops.shape(activations)[0], "float32")
        first = self.begin_step - ops.ceil(self.num_samples / batch)
        values = self._sums.value, self._samples.value, self._steps.value
        return overwriting(activations, values, (first,), self._add_up)

    def _add_up(
        self, upstream: Tensor, activations: Tensor, values: Tensors, constants: Tensors
    ) -> Tensors:
        (sums, samples, steps), (first,) = values, constants
        counts = ops.any(ops.not_equal(upstream, 0), axis=-1)
        more, further = activation_sums(activations, counts, self.aggregation)
        # A batch whose activations are not all finite was not measured.
        due = ops.logical_and(steps >= first, ops.all(ops.isfinite(more)))
        return (
            ops.where(due, sums + more, sums),
            ops.where(due, samples + further, samples),
            steps + 1.0,
        )

    def statistics(self) -> tuple[np.ndarray, float]:
        """The sums `(F,)` over the samples, and how many samples they hold."""
        sums, samples = map(ops.convert_to_numpy, (self._sums, self._samples))
        return sums, float(samples)
