"""Sheared LLaMA's method: masks are learned under a constraint.

Shapes: F units of a group, or `(E, F)` of experts; R rows of units, each of which keeps
its own `target_dim`: one, or one per expert.
"""

import dataclasses
import functools
import math
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_idea._schedules import CosineDecay
from keras_idea._typing import Tensor
from keras_idea._validation import check_int, check_number
from keras_idea.errors import ArgumentError, PruningStopped
from keras_idea.functional import hard_concrete as hc
from keras_idea.methods.method import Decision, Gradients, Method


class LearnedMask(Method):
    r"""Learns a hard concrete mask for each group's units, from `begin_step` on.

    Before each train step a mask `z` is drawn, and the kernel that reads the units
    holds `z` times its weights `W`. The step's gradient `G` of that kernel gives both
    gradients:

    $$\frac{\partial L}{\partial z_i} = \sum_j G_{ij} W_{ij}, \qquad
    \frac{\partial L}{\partial W_{ij}} = z_i G_{ij}$$

    The model's optimizer steps `W`. The masks minimize the loss plus

    $$\frac1N \sum_{i=1}^N \lambda_1 (s_i - t_i) + \lambda_2 (s_i - t_i)^2$$

    over the N layers. Here `s_i` is the expected sparsity and `t_i` its target, which
    grows linearly over the first steps. The multipliers start at 0 and ascend.
    Validation in `fit`, and files written when an epoch ends, see the deterministic
    mask with exactly the units to keep. After `prune_steps` steps this mask stays, and
    its soft values are folded into the kernel.

    If a run stops before the end, the model keeps its full width and gets `W` back.

    Args:
        seed: int >= 0. The seed of the masks' noise and initial values. Defaults to 0.
        mask_learning_rate: float >= 0. The masks' learning rate at the beginning.
            Defaults to 1.0.
        multiplier_learning_rate: float >= 0. The multipliers' learning rate at the
            beginning. Defaults to 1.0.
        warmup_share: float in [0, 1]. The fraction of `prune_steps` over which the
            target sparsity grows. Defaults to 0.2.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the
            sparsity exceeds 0.953, or if the run begins after the masks should be
            learned.

    Example:
    >>> method = LearnedMask(seed=1)
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=method
    ... )

    Notes:
        Masks and multipliers have an Adam of their own (betas 0.9 and 0.95, epsilon
        1e-8). Its rates fall by a cosine to 0 over `prune_steps`. Weight decay,
        constraints and clipping act on `W` and its gradient `z G`; a regularizer of the
        kernel sees `z W`.

    Source: Sheared LLaMA (arXiv 2310.06694), princeton-nlp/LLM-Shearing.
    """

    name = "learned_mask"

    def __init__(
        self,
        seed: int = 0,
        mask_learning_rate: float = 1.0,
        multiplier_learning_rate: float = 1.0,
        warmup_share: float = 0.2,
    ) -> None:
        self.seed = check_int("seed", seed, minimum=0)
        self.mask_learning_rate = check_number("mask_learning_rate", mask_learning_rate)
        self.multiplier_learning_rate = check_number(
            "multiplier_learning_rate", multiplier_learning_rate
        )
        self.warmup_share = check_number("warmup_share", warmup_share, 0.0, 1.0)

    def decision_step(self, begin_step: int, prune_steps: int) -> int:
        """int, `begin_step + prune_steps`."""
        return begin_step + prune_steps

    def learner(
        self, targets: Sequence[tuple[Any, int]], begin_step: int, prune_steps: int
    ) -> "MaskLearner":
        """Returns what learns the masks in the optimizer's steps; see `Method`."""
        masks = []
        for ffn, target_dim in targets:
            if 1 - target_dim / ffn.hidden_dim > hc.MAX_SPARSITY:
                least = int((1 - hc.MAX_SPARSITY) * ffn.hidden_dim) + 1
                raise ArgumentError(
                    f"`learned_mask` cannot prune {ffn.name} from {ffn.hidden_dim} to "
                    f"{target_dim} {ffn.units}: its expected sparsity cannot exceed "
                    f"{hc.MAX_SPARSITY:.3f}. Keep at least {least}."
                )
            # Not Python's `hash`, which differs between processes.
            stream = zlib.crc32(f"{self.seed}/{ffn.place}".encode())
            masks.append(Mask(ffn, target_dim, stream))
        return MaskLearner(masks, begin_step, prune_steps, self)


@dataclasses.dataclass(eq=False)
class Mask:
    """The mask of one group while it is learned.

    Attributes:
        ffn: `FFN` handle.
        target_dim: int, the units to keep.
        stream: int in [0, 2^32), of the noise and the initial values.
        learned: variable `(4, F)` of the optimizer: log alpha, its two moments, and the
            gradient by the mask that an accumulated step has added up so far.
    """

    ffn: Any
    target_dim: int
    stream: int
    learned: keras.Variable = None

    @property
    def log_alpha(self) -> Tensor:
        """Tensor `(F,)`, the parameters."""
        return self.learned.value[0]

    def noise(self, step: int | Tensor) -> Tensor:
        """Draws the uniform numbers of a step."""
        shape = self.ffn.units_shape
        drawn = hc.noise(self.stream, step, math.prod(shape))
        return ops.reshape(drawn, shape)

    def drawn(self, step: int | Tensor) -> Tensor:
        """Draws the mask `z` of the train step after so many steps."""
        return hc.sample(self.log_alpha, self.noise(step))

    def final(self) -> Tensor:
        """Computes the deterministic mask, with soft values."""
        alive = self.ffn.mask.value
        return hc.final_mask(self.log_alpha, self.target_dim, alive)

    def initial(self) -> np.ndarray:
        """Draws the first value of `learned`: log alpha from N(5, 0.01^2)."""
        first = np.zeros((4, *self.ffn.units_shape), "float32")
        first[0] = np.random.default_rng(self.stream).normal(5.0, 0.01, first[0].shape)
        return first


class MaskLearner:
    """Learns masks inside the steps of an optimizer, which holds its variables."""

    #: What a checkpoint has restored: optimizer -> (its step, arrays).
    restored: ClassVar[weakref.WeakKeyDictionary] = weakref.WeakKeyDictionary()

    def __init__(
        self,
        masks: Sequence[Mask],
        begin_step: int,
        prune_steps: int,
        method: LearnedMask,
    ) -> None:
        self.masks, self.begin_step, self.prune_steps = masks, begin_step, prune_steps
        self.method = method
        self.multipliers: keras.Variable = None  # (3, 2): values and their moments
        #: bool, whether it continues from a checkpoint.
        self.continues = False
        #: By the `id` of a kernel that reads units: the kernel, `z W`, and its `W`.
        self.weights: dict[int, tuple[keras.Variable, keras.Variable]] = {}

    @property
    def variables(self) -> list[keras.Variable]:
        """List of its variables."""
        return [*(weight for _, weight in self.weights.values()), *self.learned]

    @property
    def learned(self) -> list[keras.Variable]:
        """List of the variables that a checkpoint holds in addition to `W`."""
        return [*(mask.learned for mask in self.masks), self.multipliers]

    def make_variables(self, optimizer: keras.Optimizer) -> None:
        """Adds its variables to an optimizer."""
        add = functools.partial(optimizer.add_variable, dtype="float32")
        for mask in self.masks:
            for cut in mask.ffn.outgoing_cuts():
                kernel = cut.variable
                if id(kernel) not in self.weights:
                    weight = optimizer.add_variable_from_reference(kernel, "unmasked")
                    self.weights[id(kernel)] = kernel, weight
            mask.learned = add((4, *mask.ffn.units_shape), name="learned_mask")
        self.multipliers = add((3, 2), name="multipliers")

    def begin(self, optimizer: keras.Optimizer, step: int) -> None:
        """Begins after so many steps, or continues from a checkpoint of this step."""
        at, arrays = self.restored.pop(optimizer, (None, []))
        shapes = [tuple(variable.shape) for variable in self.learned]
        self.continues = at == step and [a.shape for a in arrays] == shapes
        if not self.continues:
            arrays = [mask.initial() for mask in self.masks]
            arrays.append(np.zeros((3, 2), "float32"))
        for variable, array in zip(self.learned, arrays, strict=True):
            variable.assign(array)
        self._keep_weights()
        self.draw(step)

    def draw(self, step: int | Tensor) -> None:
        """Draws the masks of the next train step: the kernels become `z W`."""
        self._assign([mask.drawn(step) for mask in self.masks])

    def show(self) -> None:
        """Shows the deterministic masks, for an evaluation or a file."""
        self._assign([mask.final() for mask in self.masks])

    def put_weights(self) -> None:
        """Gives the kernels `W`."""
        for kernel, weight in self.weights.values():
            kernel.assign(ops.copy(weight.value))

    def decide(self) -> list[Decision]:
        """Returns the deterministic masks of all groups, with their soft values."""
        for mask in self.masks:
            if not ops.convert_to_numpy(mask.learned.value[2]).any():
                raise PruningStopped(
                    f"No finite gradient has reached {mask.ffn.name}, so no mask was "
                    "learned. Check the data and the learning rate."
                )
        soft = [ops.convert_to_numpy(mask.final()) for mask in self.masks]
        return [Decision((each > 0).astype("float32"), scale=each) for each in soft]

    def gradients_by_mask(self, gradients: Gradients) -> list[Tensor]:
        """Computes the gradient of the loss by each mask, `(F,)`: the sums of `G W`."""
        weights = {key: weight.value for key, (_, weight) in self.weights.items()}
        return [
            gradients.by_units(mask.ffn.outgoing_cuts(), weights) for mask in self.masks
        ]

    def gradients_by_weights(
        self,
        grads: list[Tensor],
        place_of: Callable[[keras.Variable], int | None],
        step: Tensor,
    ) -> list[Tensor]:
        """Returns a step's gradients with `z G` for the kernels in place of `G`."""
        grads = list(grads)
        for key, scale in self._scales([m.drawn(step) for m in self.masks]).items():
            place = place_of(self.weights[key][0])
            if place is not None and grads[place] is not None:
                grads[place] = grads[place] * ops.cast(scale, grads[place].dtype)
        return grads

    def learn(
        self,
        by_masks: Sequence[Tensor],
        steps: Tensor,
        is_step_end: bool | Tensor,
        completed: int | Tensor,
    ) -> None:
        """Takes a step on masks and multipliers, after one on the weights.

        `steps` are the optimizer steps before this call, which ends `completed`, 1 or
        0. `is_step_end` is True, or a bool tensor if gradients are accumulated.
        """
        self._keep_weights()
        method, steps_in_all = self.method, self.prune_steps
        elapsed = ops.cast(steps, "float32") - float(self.begin_step)
        grown = elapsed / max(method.warmup_share * steps_in_all, 1.0)
        grown = ops.minimum(grown, 1.0)
        due = [(1 - m.target_dim / m.ffn.hidden_dim) * grown for m in self.masks]
        found = [hc.expected_sparsity(m.log_alpha) for m in self.masks]
        pairs = zip(found, due, strict=True)
        gaps = ops.concatenate([ops.reshape(s - t, (-1,)) for s, t in pairs])
        ascent = hc.constraint_ascent(gaps)
        rate = CosineDecay(method.multiplier_learning_rate, 0.0, steps_in_all)(elapsed)
        multipliers = self.multipliers.value
        new = hc.adam_step(multipliers, ascent, elapsed + 1.0, -rate)
        rate = CosineDecay(method.mask_learning_rate, 0.0, steps_in_all)(elapsed)
        for mask, by_mask, target in zip(self.masks, by_masks, due, strict=True):
            before = mask.learned.value
            log_alpha, by_mask = before[0], by_mask + before[3]
            gradient = hc.sample_slope(log_alpha, mask.noise(steps)) * by_mask
            slope = hc.constraint_slope(log_alpha, target, multipliers[0])
            gradient = gradient + slope / gaps.shape[0]
            value = ops.clip(log_alpha, hc.MINIMUM, hc.MAXIMUM)
            old = ops.stack([value, before[1], before[2]])
            after = hc.adam_step(old, gradient, elapsed + 1.0, rate)
            # A unit whose gradient is not finite was not measured.
            after = ops.where(ops.isfinite(gradient), after, old)
            after = ops.concatenate([after, ops.zeros_like(by_mask)[None]])
            gathered = ops.concatenate([before[:3], by_mask[None]])
            mask.learned.assign(ops.where(is_step_end, after, gathered))
        self.multipliers.assign(ops.where(is_step_end, new, multipliers))
        self.draw(steps + completed)

    def _keep_weights(self) -> None:
        for kernel, weight in self.weights.values():
            weight.assign(ops.copy(kernel.value))

    def _scales(self, values: Sequence[Tensor]) -> dict[int, Tensor]:
        """Returns what masks multiply the kernels with, by the kernels' `id`."""
        scales: dict[int, Tensor] = {}
        for mask, value in zip(self.masks, values, strict=True):
            for cut in mask.ffn.outgoing_cuts():
                key = id(cut.variable)
                scales[key] = cut.spread(value, 1) * scales.get(key, 1.0)
        return scales

    def _assign(self, values: Sequence[Tensor]) -> None:
        for key, scale in self._scales(values).items():
            kernel, weight = self.weights[key]
            kernel.assign(weight.value * ops.cast(scale, weight.dtype))
