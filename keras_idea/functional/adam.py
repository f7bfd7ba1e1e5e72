"""One step of Adam as a pure function, for what no optimizer trains."""

from keras import ops

from keras_idea.typing import Tensor


def adam_step(
    value: Tensor,
    gradient: Tensor,
    moments: Tensor,
    step: float | Tensor,
    rate: float | Tensor,
    betas: tuple[float, float] = (0.9, 0.95),
    epsilon: float = 1e-8,
) -> tuple[Tensor, Tensor]:
    r"""One step of Adam, without weight decay.

    $$m = \beta_1 m + (1 - \beta_1) g, \quad v = \beta_2 v + (1 - \beta_2) g^2$$

    $$w = w - \eta \, \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} +
    \epsilon}$$

    Args:
        value: tensor `w`.
        gradient: tensor `g` of the same shape.
        moments: tensor of the same shape with an axis of 2 in front: `m`, `v`.
        step: float scalar, `t`: 1 at the first step.
        rate: float scalar, `eta`; negative to ascend.
        betas: two floats in [0, 1). Default (0.9, 0.95).
        epsilon: float > 0. Default 1e-8.

    Returns:
        The new value and the new moments, float32.

    Example:
    >>> value, moments = adam_step(1.0, 0.5, [0.0, 0.0], step=1.0, rate=0.1)
    >>> round(float(value), 4)
    0.9
    >>> [round(float(moment), 4) for moment in moments]
    [0.05, 0.0125]

    Source: Kingma & Ba, 2015 (arXiv 1412.6980).
    """
    value, gradient = ops.cast(value, "float32"), ops.cast(gradient, "float32")
    moments = ops.cast(moments, "float32")
    first = betas[0] * moments[0] + (1 - betas[0]) * gradient
    second = betas[1] * moments[1] + (1 - betas[1]) * ops.square(gradient)
    mean = first / (1 - ops.power(betas[0], step))
    scale = ops.sqrt(second / (1 - ops.power(betas[1], step)))
    return value - rate * mean / (scale + epsilon), ops.stack([first, second])
