"""A mask of neurons that is learned inside the backward pass.

Shapes: F = hidden_dim (neurons).
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.functional.adam import adam_step
from keras_idea.functional.hard_concrete import (
    MAXIMUM,
    MINIMUM,
    hard_concrete_ascent,
    hard_concrete_lagrangian_slope,
    hard_concrete_mask,
    hard_concrete_noise,
    hard_concrete_sample,
    hard_concrete_slope,
    hard_concrete_sparsity,
)
from keras_idea.methods.probe import Overwritten, Probe, Tensors, overwriting
from keras_idea.schedules import CosineDecay
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


INITIAL_MEAN, INITIAL_DEVIATION = 5.0, 0.01


@keras.saving.register_keras_serializable(package="keras_idea")
class MaskProbe(Probe):
    """The learned mask of one FFN; see `LearnedMask`.

    It begins after `begin_step` and continues for `prune_steps`. `stream`, an int in
    [0, 2^32), is that of the noise and the initial values. `constrain_with` joins the
    probes of a model; the first has the multipliers of all.
    """

    arguments = (
        "hidden_dim",
        "target_dim",
        "begin_step",
        "prune_steps",
        "stream",
        "learning_rate",
        "warmup_share",
    )

    def __init__(
        self,
        hidden_dim: int,
        target_dim: int,
        begin_step: int,
        prune_steps: int,
        stream: int,
        learning_rate: float = 1.0,
        warmup_share: float = 0.2,
        multipliers: Multipliers | dict[str, Any] | None = None,
        name: str = "mask_probe",
    ) -> None:
        super().__init__(name=name, dtype="float32")
        self.hidden_dim = hidden_dim
        self.target_dim = target_dim
        self.begin_step = begin_step
        self.prune_steps = prune_steps
        self.stream = stream
        self.learning_rate = learning_rate
        self.warmup_share = warmup_share
        if isinstance(multipliers, dict):
            multipliers = keras.saving.deserialize_keras_object(multipliers)
        self.multipliers: Any = multipliers
        self._peers = _Peers([])

    def build(self) -> None:
        """Makes the mask and its moments."""
        super().build()
        shape = (self.hidden_dim,)
        self.log_alpha = self.add_overwritten("log_alpha", shape)
        generator = np.random.default_rng(self.stream)
        initial = generator.normal(INITIAL_MEAN, INITIAL_DEVIATION, shape)
        self.log_alpha.assign(initial.astype("float32"))
        self._moments = self.add_overwritten("moments", (2, *shape))
        self._measured = self.add_overwritten("measured", shape)
        if self.multipliers is not None:
            self.multipliers.build()

    def constrain_with(self, probes: Sequence["MaskProbe"]) -> None:
        """Puts this probe under one constraint with others; it is among them."""
        self._peers = _Peers(probes)

    def has_learned(self) -> bool:
        """Whether a gradient that was finite, 0 too, has ever reached it."""
        return bool(ops.convert_to_numpy(self._measured.value).any())

    def sparsity(self) -> Tensor:
        """The expected sparsity now, a scalar tensor."""
        return hard_concrete_sparsity(ops.stop_gradient(self.log_alpha.value))

    def target_sparsity(self, elapsed: Tensor) -> Tensor:
        """The sparsity that is due so many steps after `begin_step`."""
        warmup = max(self.warmup_share * self.prune_steps, 1.0)
        full = 1 - self.target_dim / self.hidden_dim
        return full * ops.minimum(elapsed / warmup, 1.0)

    def scale(self) -> Tensor:
        """The deterministic mask `(F,)`; see `Probe`."""
        log_alpha = ops.stop_gradient(self.log_alpha.value)
        return hard_concrete_mask(log_alpha, self.target_dim)

    def tap(
        self, activations: Tensor, training: bool = True, mask: Tensor | None = None
    ) -> Tensor:
        """The activations times the mask; see `Probe`."""
        if not training:
            return activations * ops.cast(self.scale(), activations.dtype)
        probes = self._peers.probes
        if not probes:
            raise ArgumentError(
                f"'{self.path}' is in the middle of learning its mask. Continue with "
                "`fit` and the IdeaPruneCallback that the model was saved under."
            )
        steps = ops.stop_gradient(self._steps.value)
        elapsed = steps - self.begin_step
        if self.multipliers is not None:
            sparsity = ops.stack([probe.sparsity() for probe in probes])
            target = ops.stack([probe.target_sparsity(elapsed) for probe in probes])
            activations = self.multipliers.tap(activations, sparsity, target, elapsed)
        variables = self.log_alpha, self._moments, self._measured, self._steps
        noise = hard_concrete_noise(self.stream, steps, self.hidden_dim)
        multipliers = probes[0].multipliers.values
        return overwriting(
            activations,
            [variable.value for variable in variables],
            (noise, multipliers, self.target_sparsity(elapsed)),
            self._learn,
            factor=_drawn,
        )

    def _learn(
        self, upstream: Tensor, activations: Tensor, values: Tensors, constants: Tensors
    ) -> Tensors:
        """A step of Adam on the mask."""
        log_alpha, moments, measured, steps = values
        noise, multipliers, target = constants
        by_mask = hard_concrete_slope(log_alpha, noise)
        by_mask *= _sum_over_tokens(upstream, activations)
        by_constraint = hard_concrete_lagrangian_slope(log_alpha, target, multipliers)
        elapsed = steps - self.begin_step
        gradient = by_mask + by_constraint / len(self._peers.probes)
        rate = CosineDecay(self.learning_rate, 0.0, self.prune_steps)(elapsed)
        value = ops.clip(log_alpha, MINIMUM, MAXIMUM)
        after = adam_step(value, gradient, moments, elapsed + 1.0, rate)
        # A neuron whose gradient is not finite was not measured.
        finite = ops.isfinite(gradient)
        pairs = zip((*after, measured + 1.0), (value, moments, measured), strict=True)
        updated = [ops.where(finite, new, old) for new, old in pairs]
        return *updated, steps + 1.0

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments."""
        multipliers = self.multipliers
        if multipliers is not None:
            multipliers = keras.saving.serialize_keras_object(multipliers)
        return {**super().get_config(), "multipliers": multipliers}


class _Peers:
    """The probes under one constraint. No list, in which Keras would track them."""

    def __init__(self, probes: Sequence[MaskProbe]) -> None:
        self.probes = list(probes)


def _drawn(values: Tensors, constants: Tensors) -> Tensor:
    """The mask of a train step."""
    (log_alpha, *_), (noise, *_) = values, constants
    return hard_concrete_sample(log_alpha, noise)


def _sum_over_tokens(upstream: Tensor, activations: Tensor) -> Tensor:
    """The loss's gradient by the mask `(F,)`, in float32."""
    products = ops.cast(upstream, "float32") * ops.cast(activations, "float32")
    return ops.sum(products, axis=tuple(range(len(products.shape) - 1)))
