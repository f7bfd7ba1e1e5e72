"""Minitron's method: neurons go by the size of their activations."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_idea._groups.kinds import KV_GROUPS
from keras_idea._typing import Tensor
from keras_idea._validation import check_choice
from keras_idea.errors import ArgumentError
from keras_idea.functional.importance import (
    AGGREGATIONS,
    Aggregation,
    activation_sums,
    importance_of_sums,
)
from keras_idea.methods.calibration import Data, Samples, captured
from keras_idea.methods.captures import Statistic, Sums, capture_of
from keras_idea.methods.method import Method

_NO_DATA = (
    "Method 'activation' needs `data`. Received: data=None. Pass samples of the "
    "model's inputs, as `ki.methods.Activation(data)` or in `shrink`."
)


class Activation(Method):
    r"""Keeps the neurons with the largest activations, all at once at `begin_step`.

    Between two steps, the model runs over the samples in evaluation mode. Padding does
    not count: an input whose name ends in "padding_mask" marks it with 0, else Keras's
    own mask. In `shrink`, its `data` are used if the method has none.

    With `by_weights=True` the activations `c` are weighed by the spans of the unit's
    weights in each kernel `K`:

    $$s_i = c_i \sum_K \frac{r^K_i}{\max_j r^K_j}, \qquad
    r^K_i = \max_d w^K_{id} + \lvert \min_d w^K_{id} \rvert$$

    over all weights `d` that the unit has in it.

    Args:
        data: samples or None. The model's inputs: an array, a dict of arrays for
            several inputs, or an iterable of batches of them. From pairs
            `(inputs, targets)` the inputs are used. For a KerasHub task, give what its
            preprocessor returns. The callback needs them. Defaults to None.
        num_samples: int >= 1. The most samples to use. Defaults to 1024.
        aggregation: str. "paper": the mean over samples of the L2 norm over tokens, as
            IDEA Prune prints it. "minitron": the L2 norm over samples of the mean
            magnitude over tokens, as NVIDIA's tool computes it. Defaults to "paper".
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.
        refit: bool. Whether to fit what reads the units that stay to the data, as
            `shrink` does with `refit=True`. It needs `data`. Defaults to False.
        by_weights: bool. Whether the importance is weighed by the spans of the weights.
            Defaults to False, which is the paper's method.

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if there
            are no `data`.

    Example:
    >>> method = Activation(x, num_samples=1024)  # tokens `(samples, length)`
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=method
    ... )

    Source: Minitron (arXiv 2407.14679), as IDEA Prune (arXiv 2503.05920) has it;
    `by_weights` from Martra (arXiv 2512.22671), as optipfair computes it.
    """

    name = "activation"

    def __init__(
        self,
        data: Data | None = None,
        num_samples: int = 1024,
        aggregation: Aggregation = "paper",
        batch_size: int = 32,
        refit: bool = False,
        by_weights: bool = False,
    ) -> None:
        self.aggregation = check_choice("aggregation", aggregation, AGGREGATIONS)
        self.by_weights = by_weights
        self.data: Samples | None = None
        if data is not None or refit:
            self.data = Samples(data, num_samples, batch_size)
        if refit:
            self.refit_data = self.data

    def decision_step(self, begin_step: int, prune_steps: int) -> int:
        """int, `begin_step`."""
        return begin_step

    def check(self, groups: Sequence[Any]) -> None:
        """Raises an error if there are no data, or no activations to measure."""
        if self.data is None:
            raise ArgumentError(_NO_DATA)
        for group in groups:
            capture_of(group, self._statistic(group))

    def importance(
        self, model: keras.Model, groups: Sequence[Any], samples: Samples | None
    ) -> list[Any]:
        """Returns the size of each unit's activations, over its own `data` if it has.

        For a key/value head, the L2 norm of its query heads' outputs is used as the
        activation. For a channel, it is the sum over the layers that read it, at all
        its places in their inputs. See `Method.importance`.
        """
        samples = samples if self.data is None else self.data
        if samples is None:
            raise ArgumentError(_NO_DATA)
        captures = [capture_of(group, self._statistic(group)) for group in groups]
        found = []
        for group, (sums, count) in zip(
            groups, captured(model, captures, samples), strict=True
        ):
            if not count:
                raise ArgumentError(
                    f"Method 'activation' saw no sample for {group.name}. Its `data` "
                    "must hold at least one token that is not padding."
                )
            values = importance_of_sums(sums, count, self.aggregation)
            found.append(values * _spans(group) if self.by_weights else values)
        return found

    def _statistic(self, group: Any) -> Statistic:
        if group.kind != KV_GROUPS:
            return functools.partial(activation_sums, aggregation=self.aggregation)
        return functools.partial(_of_heads, group.hidden_dim, self.aggregation)


def _spans(group: Any) -> Tensor:
    """Adds up the spans of each unit's weights, `(F,)`: at most 1 for each kernel."""
    total: Any = 0.0
    for cut in group.scored_cuts():
        weights = ops.cast(cut.variable.value, "float32")
        axes = cut.weights_axes
        largest = cut.split(ops.max(weights, axes), ops.max)
        smallest = cut.split(ops.min(weights, axes), ops.min)
        for high, low in zip(largest, smallest, strict=True):
            spans = high + ops.abs(low)
            total = total + spans / ops.maximum(ops.max(spans), 1e-30)
    return total


def _of_heads(
    heads: int, aggregation: Aggregation, hidden: Tensor, mask: Tensor | None
) -> Sums:
    values = ops.cast(hidden, "float32")
    shape = ops.shape(values)[0], -1, heads, hidden.shape[-1] // heads
    norms_BTF = ops.norm(ops.reshape(values, shape), axis=-1)
    return activation_sums(norms_BTF, mask, aggregation)
