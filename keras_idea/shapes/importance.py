"""How much of a model each of its parts carries, before any of them is cut.

Shapes: B samples, T tokens, F units of a group (neurons, key/value heads).
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.functional.activation import activation_sums, importance_of_sums
from keras_idea.groups.kinds import KINDS
from keras_idea.methods.calibration import (
    Samples,
    hidden_statistics,
    layer_statistics,
)
from keras_idea.methods.captures import HiddenStatistic, Sums
from keras_idea.shapes.hidden_size import norms_of
from keras_idea.surgery.probes import check_probes
from keras_idea.typing import Tensor

#: What tells how important a unit is: its activations, or its weights alone.
Measure: TypeAlias = Literal["activation", "magnitude"]
MEASURES: tuple[Measure, ...] = ("activation", "magnitude")


def weight_norm(group: FFN) -> Tensor:
    r"""The L2 norm `(F,)`, or `(experts, F)`, of a unit's weights in all kernels.

    $$s_i = \sqrt{\sum_K \lVert w_i^K \rVert_2^2}$$
    """
    total: Any = 0.0
    for cut in group.kernel_cuts():
        squares = ops.square(ops.cast(cut.variable.value, "float32"))
        for part in cut.split(ops.sum(squares, axis=cut.weights_axes)):
            total = total + part * cut.size  # which is the mean over what a unit has
    return ops.sqrt(total)


def activation_norms(
    model: keras.Model,
    groups: Sequence[FFN],
    data: Samples,
    num_samples: int,
    batch_size: int,
) -> list[Tensor]:
    """How large the activations of each unit are, over samples: `(F,)` for each group.

    Of neurons as `keras_idea.functional.activation_importance`. Of a key/value head the
    L2 norm over the values that its query heads read, in place of one activation.
    Refuses experts, whose hidden activations cannot be seen.
    """
    check_probes([g for g in groups if KINDS[g.kind].probed], None, "activation")
    statistics: list[HiddenStatistic] = [
        activation_sums if KINDS[g.kind].probed else _of_heads(g.hidden_dim)
        for g in groups
    ]
    looked_at = list(zip(groups, statistics, strict=True))
    limits = num_samples, batch_size
    found = hidden_statistics(model, looked_at, data, *limits) if groups else []
    for group, (values, samples) in zip(groups, found, strict=True):
        if not samples or not np.isfinite(values).all():
            raise ArgumentError(
                f"The activations of {group.name} do not rank its units: "
                + ("some are NaN or infinite" if samples else "there are none")
                + " on the calibration data. Check the `data` and the weights."
            )
    return [importance_of_sums(*sums, "paper") for sums in found]


def block_influence(
    model: keras.Model,
    blocks: Sequence[keras.layers.Layer],
    data: Samples,
    num_samples: int,
    batch_size: int,
) -> np.ndarray:
    r"""How far each block turns what passes through it: at least zero, at most two.

    $$\mathrm{BI}_l = 1 - \mathbb{E}\,\frac{x_l^\top x_{l+1}}
    {\lVert x_l \rVert \lVert x_{l+1} \rVert}$$

    Source: ShortGPT (arXiv 2403.03853).
    """
    looked_at = [(block, _cosines) for block in blocks]
    found = layer_statistics(model, looked_at, data, num_samples, batch_size)
    return np.array([1 - float(total) / max(n, 1.0) for total, n in found])


def stream_importance(
    backbone: keras.Model,
    model: keras.Model,
    data: Samples,
    num_samples: int,
    batch_size: int,
) -> np.ndarray:
    """How large each feature of the residual stream is where norms hand it on.

    The activation importance, summed over the norms: Minitron (arXiv 2407.14679).
    """
    looked_at = [(norm, _of_outputs) for norm in norms_of(backbone)]
    sums = layer_statistics(model, looked_at, data, num_samples, batch_size)
    return sum((s / max(n, 1.0) for s, n in sums), start=np.zeros(1))


def _of_heads(groups: int) -> HiddenStatistic:
    def statistic(hidden: Tensor, mask: Tensor | None) -> Sums:
        values = ops.cast(hidden, "float32")
        shape = ops.shape(values)[0], -1, groups, hidden.shape[-1] // groups
        norms_BTF = ops.norm(ops.reshape(values, shape), axis=-1)
        return activation_sums(norms_BTF, mask)

    return statistic


def _of_outputs(inputs: Tensor, outputs: Tensor, mask: Tensor | None) -> Sums:
    return activation_sums(outputs, mask)


def _cosines(inputs: Tensor, outputs: Tensor, mask: Tensor | None) -> Sums:
    before, after = ops.cast(inputs, "float32"), ops.cast(outputs, "float32")
    sizes = ops.norm(before, axis=-1) * ops.norm(after, axis=-1)
    cosines = ops.sum(before * after, axis=-1) / ops.maximum(sizes, 1e-20)
    counts = ops.ones_like(cosines)
    if mask is not None:
        counts = ops.cast(ops.reshape(mask, ops.shape(cosines)), "float32")
    return ops.sum(cosines * counts), ops.sum(counts)
