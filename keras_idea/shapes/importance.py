"""How much of a model each of its parts carries, before any of them is cut."""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_idea.functional.activation import activation_sums
from keras_idea.methods.calibration import Calibration, captured
from keras_idea.methods.captures import Sums, layer_capture
from keras_idea.shapes.hidden_size import norms_of
from keras_idea.typing import Tensor


def block_influence(
    model: keras.Model,
    blocks: Sequence[keras.layers.Layer],
    samples: Calibration,
) -> np.ndarray:
    r"""How far each block turns what passes through it: at least zero, at most two.

    $$\mathrm{BI}_l = 1 - \mathbb{E}\,\frac{x_l^\top x_{l+1}}
    {\lVert x_l \rVert \lVert x_{l+1} \rVert}$$

    Source: ShortGPT (arXiv 2403.03853).
    """
    found = captured(model, [layer_capture(b, _cosines) for b in blocks], samples)
    return np.array([1 - float(total) / max(n, 1.0) for total, n in found])


def stream_importance(
    backbone: keras.Model, model: keras.Model, samples: Calibration
) -> np.ndarray:
    """How large each feature of the residual stream is where norms hand it on.

    The activation importance, summed over the norms: Minitron (arXiv 2407.14679).
    """
    captures = [layer_capture(norm, _of_outputs) for norm in norms_of(backbone)]
    sums = captured(model, captures, samples)
    return sum((s / max(n, 1.0) for s, n in sums), start=np.zeros(1))


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
