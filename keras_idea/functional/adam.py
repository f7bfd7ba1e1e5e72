"""One step of Adam as a pure function, for what no optimizer trains."""

from keras import ops

from keras_idea._typing import Tensor


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

    `moments` holds m and v along a first axis, `step` is t, 1 at the first step, and
    `rate` is eta, negative to ascend. Returns the new value and moments, float32.

    Source: Kingma & Ba, 2015 (arXiv 1412.6980).
    """
    value, gradient = ops.cast(value, "float32"), ops.cast(gradient, "float32")
    moments = ops.cast(moments, "float32")
    first = betas[0] * moments[0] + (1 - betas[0]) * gradient
    second = betas[1] * moments[1] + (1 - betas[1]) * ops.square(gradient)
    mean = first / (1 - ops.power(betas[0], step))
    scale = ops.sqrt(second / (1 - ops.power(betas[1], step)))
    return value - rate * mean / (scale + epsilon), ops.stack([first, second])
