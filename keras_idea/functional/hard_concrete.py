r"""Masks that are learned: the hard concrete distribution, and its constraint.

One parameter $a$ (log alpha) a neuron. All functions clamp it to
$[\log 0.01, \log 100]$ first; as in the original, where the parameter itself is
clamped before every use, the clamp does not stop gradients. All of them compute
in float32 and are pure `keras.ops`.

Source: Louizos et al., 2018 (arXiv 1712.01312), with the constants of Sheared
LLaMA (Xia et al., 2023, arXiv 2310.06694, `l0_module.py`).
"""

import math

from keras import ops

from keras_idea._typing import Tensor
from keras_idea.functional.counter_uniform import counter_uniform
from keras_idea.functional.masks import top_k_mask

BETA = 2 / 3
STRETCH, SHIFT = 1.2, -0.1
EPSILON = 1e-6
MINIMUM, MAXIMUM = math.log(1e-2), math.log(1e2)
SHARPNESS = 0.8
# Where a stretched sample leaves zero, in the units of log alpha.
_EDGE = BETA * math.log(-SHIFT / (STRETCH + SHIFT))
# The clamp keeps every neuron's probability above 4.7 %.
MAX_SPARSITY = 1 / (1 + math.exp(MINIMUM - _EDGE))


def hard_concrete_noise(key: int, counter: int | Tensor, size: int) -> Tensor:
    """Draws uniform numbers in [1e-6, 1 - 1e-6).

    Args:
        key: int in [0, 2^32). The stream.
        counter: int or integer scalar tensor. The number of the draw in the stream.
        size: int. How many numbers to draw.

    Returns:
        Tensor `(size,)`, float32; see `counter_uniform`.
    """
    return EPSILON + (1 - 2 * EPSILON) * counter_uniform(key, counter, size)


def hard_concrete_sample(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    r"""Samples a mask with entries in [0, 1], many of them exactly 0 or 1.

    $$z = \mathrm{clip}(1.2\,y - 0.1,\ 0,\ 1), \quad
    y = \mathrm{sigmoid}\Bigl(\frac{\mathrm{logit}(u) + a}{\beta}\Bigr), \quad
    \beta = 2/3$$

    Args:
        log_alpha: tensor `(F,)`. The parameters `a`.
        uniform: tensor `(F,)` in (0, 1). The noise `u`.

    Returns:
        Tensor `(F,)`, float32 in [0, 1].

    Example:
    >>> mask = hard_concrete_sample([0.0, 4.0], uniform=[0.5, 0.5])
    >>> keras.ops.convert_to_numpy(mask).round(4).tolist()
    [0.5, 1.0]
    """
    return ops.clip(STRETCH * _concrete(log_alpha, uniform) + SHIFT, 0.0, 1.0)


def hard_concrete_slope(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    """Computes the derivative of `hard_concrete_sample` by `log_alpha`, per entry.

    Args:
        log_alpha: tensor `(F,)`. The parameters.
        uniform: tensor `(F,)` in (0, 1). The noise.

    Returns:
        Tensor `(F,)`, float32. It is zero if the sample is exactly 0 or 1.
    """
    y = _concrete(log_alpha, uniform)
    stretched = STRETCH * y + SHIFT
    inside = ops.logical_and(stretched > 0.0, stretched < 1.0)
    return ops.where(inside, STRETCH / BETA * y * (1.0 - y), 0.0)


def hard_concrete_keep(log_alpha: Tensor) -> Tensor:
    r"""Computes the probability that a sample is not zero.

    $$p = 1 - \mathrm{sigmoid}\Bigl(\beta\,\mathrm{logit}\frac{0.1}{1.2} - a\Bigr)$$

    Args:
        log_alpha: tensor of any shape. The parameters `a`.

    Returns:
        Tensor of the same shape, float32.

    Example:
    >>> keep = keras.ops.convert_to_numpy(hard_concrete_keep([-9.0, 0.0, 9.0]))
    >>> np.round(keep.astype("float64"), 4).tolist()
    [0.0471, 0.8318, 0.998]
    """
    sigmoid = ops.sigmoid(_EDGE - _clamped(log_alpha))
    return 1.0 - ops.clip(sigmoid, EPSILON, 1.0 - EPSILON)


def hard_concrete_sparsity(log_alpha: Tensor) -> Tensor:
    """Computes the expected fraction of the neurons whose sample is zero.

    Args:
        log_alpha: tensor `(..., F)`. The parameters.

    Returns:
        Tensor `(...)`, float32, at most `MAX_SPARSITY` = 0.953.
    """
    return 1.0 - ops.mean(hard_concrete_keep(log_alpha), axis=-1)


def hard_concrete_mask(
    log_alpha: Tensor, k: int, alive: Tensor | None = None
) -> Tensor:
    r"""Computes the deterministic mask: exactly k soft values, the others zero.

    $$\mathrm{soft} = \mathrm{sigmoid}(0.8\,a / \beta)$$

    Args:
        log_alpha: tensor `(F,)`. The parameters `a`.
        k: int. The neurons that keep their soft value: those with the largest
            `log_alpha`. Of equal ones (the clamp makes them) the lower index is kept.
        alive: tensor `(F,)` in {0, 1} or None. Which may stay. Defaults to None: all.

    Returns:
        Tensor `(F,)`, float32 in [0, 1].

    Example:
    >>> mask = keras.ops.convert_to_numpy(hard_concrete_mask([0.0, 3.0, 1.0], k=2))
    >>> np.round(mask.astype("float64"), 4).tolist()
    [0.0, 0.9734, 0.7685]
    """
    log_alpha = _clamped(log_alpha)
    kept = top_k_mask(log_alpha, k, alive)
    return kept * ops.sigmoid(SHARPNESS / BETA * log_alpha)


def hard_concrete_lagrangian(
    sparsity: Tensor, target: float | Tensor, multipliers: Tensor
) -> Tensor:
    r"""Computes the penalty that holds the layers' expected sparsity to its target.

    $$\frac1N \sum_{i=1}^N \lambda_1 (s_i - t_i) + \lambda_2 (s_i - t_i)^2$$

    Args:
        sparsity: tensor `(N,)`. The expected sparsity of each layer.
        target: scalar or tensor `(N,)`. The target sparsity.
        multipliers: sequence or tensor `(2,)`. The two multipliers.

    Returns:
        Scalar tensor. Add it to the loss.
    """
    gaps = ops.cast(sparsity, "float32") - target
    return ops.mean(multipliers[0] * gaps + multipliers[1] * ops.square(gaps))


def hard_concrete_lagrangian_slope(
    log_alpha: Tensor, target: float | Tensor, multipliers: Tensor
) -> Tensor:
    """Computes the derivative by `log_alpha` of one layer's term in the Lagrangian.

    Args:
        log_alpha: tensor `(..., F)`. The parameters of the layer.
        target: scalar. The target sparsity.
        multipliers: sequence or tensor `(2,)`. The two multipliers.

    Returns:
        Tensor `(..., F)`, float32.
    """
    gap = ops.expand_dims(hard_concrete_sparsity(log_alpha), -1) - target
    p = hard_concrete_keep(log_alpha)
    by_sparsity = multipliers[0] + 2.0 * multipliers[1] * gap
    return -by_sparsity * p * (1.0 - p) / p.shape[-1]


def hard_concrete_ascent(sparsity: Tensor, target: float | Tensor) -> Tensor:
    """Computes the derivative of the Lagrangian by the two multipliers.

    Args:
        sparsity: tensor `(N,)`. The expected sparsity of each layer.
        target: scalar or tensor `(N,)`. The target sparsity.

    Returns:
        Tensor `(2,)`, float32. The multipliers rise in this direction.
    """
    gaps = ops.cast(sparsity, "float32") - target
    return ops.stack([ops.mean(gaps), ops.mean(ops.square(gaps))])


def _clamped(log_alpha: Tensor) -> Tensor:
    return ops.clip(ops.cast(log_alpha, "float32"), MINIMUM, MAXIMUM)


def _concrete(log_alpha: Tensor, uniform: Tensor) -> Tensor:
    uniform = ops.cast(uniform, "float32")
    logit = ops.log(uniform) - ops.log(1.0 - uniform)
    return ops.sigmoid((logit + _clamped(log_alpha)) / BETA)
