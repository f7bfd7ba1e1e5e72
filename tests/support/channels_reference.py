"""Algorithm 1 on the channels of a small convolutional network, in NumPy, float64.

Two convolutions, of which a normalization follows the first; what they make is pooled
and concatenated, and a dense layer reads both. So the channels of the first are read in
two places, and the dense kernel has two groups along one axis.
"""

import numpy as np

from tests.support.algorithm_reference import kept

NAMES = ("first", "gamma", "beta", "second", "bias", "out")
EPSILON = 1e-3


def _windows(x, size=3):
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
    return np.moveaxis(view, 3, -1)  # (B, h, w, size, size, C)


def _transposed(grad, kernel, shape):
    back = np.zeros(shape)
    height, width = grad.shape[1:3]
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            back[:, i : i + height, j : j + width] += grad @ kernel[i, j].T
    return back


def gradients(weights, x, y):
    """The gradients of the mean cross-entropy, and the loss; training mode."""
    first, gamma, beta, second, bias, out = (weights[name] for name in NAMES)
    seen = _windows(x)
    made = np.einsum("bhwijc,ijcf->bhwf", seen, first)
    mean, variance = made.mean((0, 1, 2)), made.var((0, 1, 2))
    deviation = np.sqrt(variance + EPSILON)
    normal = (made - mean) / deviation
    hidden = np.maximum(normal * gamma + beta, 0)
    of_hidden = _windows(hidden)
    above = np.einsum("bhwijc,ijcf->bhwf", of_hidden, second) + bias
    above = np.maximum(above, 0)
    pooled = np.concatenate([above.mean((1, 2)), hidden.mean((1, 2))], -1)
    logits = pooled @ out
    logits -= logits.max(-1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probabilities[rows, y]).mean()
    probabilities[rows, y] -= 1
    d_logits = probabilities / len(y)
    d_pooled = d_logits @ out.T
    d_above = d_pooled[:, None, None, : above.shape[-1]] / np.prod(above.shape[1:3])
    d_above = np.where(above > 0, d_above, 0)
    d_hidden = _transposed(d_above, second, hidden.shape)
    d_hidden = d_hidden + (
        d_pooled[:, None, None, above.shape[-1] :] / np.prod(hidden.shape[1:3])
    )
    d_hidden = np.where(hidden > 0, d_hidden, 0)
    d_normal = d_hidden * gamma
    over = (0, 1, 2)
    d_made = (
        d_normal - d_normal.mean(over) - normal * (d_normal * normal).mean(over)
    ) / deviation
    return {
        "first": np.einsum("bhwijc,bhwf->ijcf", seen, d_made),
        "gamma": (d_hidden * normal).sum(over),
        "beta": d_hidden.sum(over),
        "second": np.einsum("bhwijc,bhwf->ijcf", of_hidden, d_above),
        "bias": d_above.sum(over),
        "out": pooled.T @ d_logits,
    }, loss


def run(weights, batches, rate, targets, begin, steps, decay):
    """Yields (weights, masks of the two groups, loss) after each step of SGD."""
    weights = {name: np.array(w, "float64") for name, w in weights.items()}
    widths = [len(weights["gamma"]), len(weights["bias"])]
    scores, masks = [np.zeros(n) for n in widths], [np.ones(n) for n in widths]
    for t, (x, y) in enumerate(batches, start=1):
        grads, loss = gradients(weights, x.astype("float64"), y)
        effect = {name: grads[name] * weights[name] for name in ("second", "out")}
        newest = [
            effect["second"].sum((0, 1, 3)) + effect["out"][widths[1] :].sum(1),
            effect["out"][: widths[1]].sum(1),
        ]
        weights = {name: w - rate * grads[name] for name, w in weights.items()}
        for i, target in enumerate(targets):
            scores[i] = (1 - decay) * np.abs(newest[i]) + decay * scores[i]
            count = kept(t, widths[i], target, begin, steps)
            order = np.argsort(-scores[i], kind="stable")
            alive = [k for k in order if masks[i][k]][:count]
            masks[i] = np.isin(np.arange(widths[i]), alive).astype("float64")
        for name in ("first", "gamma", "beta"):
            weights[name] = weights[name] * masks[0]
        weights["second"] = weights["second"] * masks[0][:, None] * masks[1]
        weights["bias"] = weights["bias"] * masks[1]
        weights["out"] = weights["out"] * np.concatenate(masks[::-1])[:, None]
        yield weights, [mask.copy() for mask in masks], loss
