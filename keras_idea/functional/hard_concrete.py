r"""Masks that are learned: the hard concrete distribution, its constraint, its Adam.

One parameter $a$ (log alpha) per neuron. All functions clamp it to
$[\log 0.01, \log 100]$ first; as in the original, where the parameter itself is
clamped before every use, the clamp does not stop gradients. All of them compute
in float32.

Source: Louizos et al., 2018 (arXiv 1712.01312), with the constants of Sheared
LLaMA (Xia et al., 2023, arXiv 2310.06694, `l0_module.py`).
"""

import math

from keras import ops

from keras_idea._typing import Tensor
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


def uniform(key: int, counter: int | Tensor, size: int) -> Tensor:
    r"""Draws `size` numbers in [0, 1): a pure function of a stream and a counter.

    A resumed run and another backend draw the same. With `h` a mixing function of
    32-bit integers (Wellons' lowbias32),

    $$u_i = \lfloor h(h(a + i) + h(a \oplus c)) / 2^8 \rfloor / 2^{24}, \quad
    a = h(key + h(counter)), \quad c = \mathtt{5BD1E995}_{16}$$

    Example:
    >>> u = keras.ops.convert_to_numpy(uniform(key=7, counter=0, size=3))
    >>> np.round(u.astype("float64"), 4).tolist()
    [0.288, 0.1627, 0.158]
    """
    start = _mix(_mix(ops.cast(counter, "int32")) + _signed(key))
    salt = _mix(ops.bitwise_xor(start, _signed(0x5BD1E995)))
    bits = _mix(_mix(ops.arange(size, dtype="int32") + start) + salt)
    top = ops.bitwise_and(ops.right_shift(bits, 8), 0xFFFFFF)
    return ops.cast(top, "float32") / float(2**24)


def _mix(x: Tensor) -> Tensor:
    # int32 products wrap around on every backend; a shift of a negative number
    # drags its sign along, so the bits that came with it are masked.
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))
    x = x * _signed(0x7FEB352D)
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
    x = x * _signed(0x846CA68B)
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF))


def _signed(number: int) -> int:
    """Returns the int32 of the same bits."""
    return (number + 2**31) % 2**32 - 2**31


def noise(key: int, counter: int | Tensor, size: int) -> Tensor:
    """Draws uniform numbers in [1e-6, 1 - 1e-6)."""
    return EPSILON + (1 - 2 * EPSILON) * uniform(key, counter, size)


def sample(log_alpha: Tensor, u: Tensor) -> Tensor:
    r"""Samples a mask with entries in [0, 1], many of them exactly 0 or 1.

    $$z = \mathrm{clip}(1.2\,y - 0.1,\ 0,\ 1), \quad
    y = \mathrm{sigmoid}\Bigl(\frac{\mathrm{logit}(u) + a}{\beta}\Bigr), \quad
    \beta = 2/3$$
    """
    return ops.clip(STRETCH * _concrete(log_alpha, u) + SHIFT, 0.0, 1.0)


def sample_slope(log_alpha: Tensor, u: Tensor) -> Tensor:
    """Computes the derivative of `sample` by `log_alpha`, per entry."""
    y = _concrete(log_alpha, u)
    stretched = STRETCH * y + SHIFT
    inside = ops.logical_and(stretched > 0.0, stretched < 1.0)
    return ops.where(inside, STRETCH / BETA * y * (1.0 - y), 0.0)


def keep_probability(log_alpha: Tensor) -> Tensor:
    r"""Computes the probability that a sample is not zero.

    $$p = 1 - \mathrm{sigmoid}\Bigl(\beta\,\mathrm{logit}\frac{0.1}{1.2} - a\Bigr)$$
    """
    sigmoid = ops.sigmoid(_EDGE - _clamped(log_alpha))
    return 1.0 - ops.clip(sigmoid, EPSILON, 1.0 - EPSILON)


def expected_sparsity(log_alpha: Tensor) -> Tensor:
    """Computes the expected fraction of zeros, over the last axis."""
    return 1.0 - ops.mean(keep_probability(log_alpha), axis=-1)


def final_mask(log_alpha: Tensor, k: int, alive: Tensor | None = None) -> Tensor:
    r"""Computes the deterministic mask: exactly k soft values, the others zero.

    $$\mathrm{soft} = \mathrm{sigmoid}(0.8\,a / \beta)$$

    The largest `log_alpha` keep theirs; of equal ones (the clamp makes them) the lower
    index.
    """
    log_alpha = _clamped(log_alpha)
    kept = top_k_mask(log_alpha, k, alive)
    return kept * ops.sigmoid(SHARPNESS / BETA * log_alpha)


def constraint_slope(
    log_alpha: Tensor, target: float | Tensor, multipliers: Tensor
) -> Tensor:
    r"""Computes the derivative by `log_alpha` of one layer's term of the constraint.

    $$\lambda_1 (s - t) + \lambda_2 (s - t)^2$$

    `s` is the `expected_sparsity` of `log_alpha`, `t` its target.
    """
    gap = ops.expand_dims(expected_sparsity(log_alpha), -1) - target
    p = keep_probability(log_alpha)
    by_sparsity = multipliers[0] + 2.0 * multipliers[1] * gap
    return -by_sparsity * p * (1.0 - p) / p.shape[-1]


def constraint_ascent(gaps: Tensor) -> Tensor:
    """Computes the derivative of the constraint by `lambda`; `gaps` are `s - t`."""
    return ops.stack([ops.mean(gaps), ops.mean(ops.square(gaps))])


def adam_step(
    state: Tensor, gradient: Tensor, step: float | Tensor, rate: float | Tensor
) -> Tensor:
    r"""Takes one step of Adam, without weight decay: no optimizer trains the masks.

    $$m = \beta_1 m + (1 - \beta_1) g, \quad v = \beta_2 v + (1 - \beta_2) g^2$$

    $$w = w - \eta \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} +
    \epsilon}$$

    `state` holds w, m and v along a first axis, `step` is t, 1 at the first step, and
    `rate` is eta, negative to ascend. Returns the new state.

    Source: Kingma & Ba, 2015 (arXiv 1412.6980); betas 0.9 and 0.95, epsilon 1e-8.
    """
    first = 0.9 * state[1] + (1 - 0.9) * gradient
    second = 0.95 * state[2] + (1 - 0.95) * ops.square(gradient)
    mean = first / (1 - ops.power(0.9, step))
    scale = ops.sqrt(second / (1 - ops.power(0.95, step)))
    return ops.stack([state[0] - rate * mean / (scale + 1e-8), first, second])


def _clamped(log_alpha: Tensor) -> Tensor:
    return ops.clip(ops.cast(log_alpha, "float32"), MINIMUM, MAXIMUM)


def _concrete(log_alpha: Tensor, u: Tensor) -> Tensor:
    u = ops.cast(u, "float32")
    logit = ops.log(u) - ops.log(1.0 - u)
    return ops.sigmoid((logit + _clamped(log_alpha)) / BETA)
