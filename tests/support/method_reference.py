"""Sheared LLaMA's masks in float64 NumPy, written from METHODS.md.

Nothing here comes from the package, and no derivative of a mask is written out:
they are differences. The weights' gradients come from the transcription of
Algorithm 1: a mask z that multiplies the neurons is one that multiplies the rows of
down.
"""

import numpy as np

from tests.support.algorithm_reference import gradients

BETA, H = 2 / 3, 1e-6


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clamp(a):
    return np.clip(a, np.log(0.01), np.log(100))


def sample(a, u):
    y = sigmoid((np.log(u / (1 - u)) + clamp(a)) / BETA)
    return np.clip(1.2 * y - 0.1, 0, 1)


def keep(a):
    x = 0.1 / 1.2
    logit = np.log(x / (1 - x))
    return 1 - np.clip(sigmoid(BETA * logit - clamp(a)), 1e-6, 1 - 1e-6)


def mask(a, k):
    soft = sigmoid(clamp(a) / BETA * 0.8)
    soft[np.argsort(-soft, kind="stable")[k:]] = 0
    return soft


def uniform(key, counter, size):
    """Counter-based random numbers, in unsigned 32-bit integers."""
    with np.errstate(over="ignore"):
        start = _mix(np.uint32(key) + _mix(np.uint32(counter)))
        salt = _mix(start ^ np.uint32(0x5BD1E995))
        bits = _mix(_mix(np.arange(size, dtype="uint32") + start) + salt)
    return (bits >> np.uint32(8)) / 2.0**24


def _mix(x):
    x = x ^ (x >> np.uint32(16))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = x ^ (x >> np.uint32(15))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return x ^ (x >> np.uint32(16))


class Adam:
    """Adam with betas 0.9 and 0.95, epsilon 1e-8, no decay."""

    def __init__(self):
        self.m = self.v = 0.0
        self.t = 0

    def step(self, w, g, rate):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.95 * self.v + 0.05 * g**2
        scale = np.sqrt(self.v / (1 - 0.95**self.t)) + 1e-8
        return w - rate * (self.m / (1 - 0.9**self.t)) / scale


def run(weights, masks, streams, batches, target_dims, steps, share, rate):
    """Learns masks with SGD on the weights; yields everything after each step."""
    *ffns, head = weights
    ffns, masks = [list(ffn) for ffn in ffns], list(masks)
    multipliers = np.zeros(2)
    adams, ascent = [Adam() for _ in masks], Adam()
    for t, (x, y) in enumerate(batches):
        due = [
            (1 - k / len(a)) * min(1, t / (share * steps))
            for k, a in zip(target_dims, masks, strict=True)
        ]
        # Just inside, so that the differences see a slope at the clamp too.
        masks = [np.clip(a, np.log(0.01) + 2 * H, np.log(100) - 2 * H) for a in masks]
        noise = [
            1e-6 + (1 - 2e-6) * uniform(s, t, len(a))
            for s, a in zip(streams, masks, strict=True)
        ]
        zs = [sample(a, u) for a, u in zip(masks, noise, strict=True)]
        masked = [
            [up, gate, down * z[:, None]]
            for (up, gate, down), z in zip(ffns, zs, strict=True)
        ]
        grads, loss = gradients([*masked, head], x.astype("float64"), y)
        decay = 0.5 * (1 + np.cos(np.pi * t / steps))
        gaps = [1 - keep(a).mean() - d for a, d in zip(masks, due, strict=True)]
        new_masks = []
        for i, (a, u, gap) in enumerate(zip(masks, noise, gaps, strict=True)):
            by_mask = (grads[i][2] * ffns[i][2]).sum(axis=1)
            by_mask *= (sample(a + H, u) - sample(a - H, u)) / (2 * H)
            by_gap = multipliers[0] + 2 * multipliers[1] * gap
            fewer = (keep(a - H) - keep(a + H)) / (2 * H) / len(a)
            by_constraint = by_gap * fewer / len(masks)
            new_masks.append(adams[i].step(a, by_mask + by_constraint, decay))
        direction = np.array([np.mean(gaps), np.mean(np.square(gaps))])
        multipliers = ascent.step(multipliers, -direction, decay)
        for ffn, grad, z in zip(ffns, grads, zs, strict=False):
            grad[2] = grad[2] * z[:, None]
            ffn[:] = [w - rate * g for w, g in zip(ffn, grad, strict=True)]
        head = head - rate * grads[-1]
        masks = new_masks
        yield [*ffns, head], [a.copy() for a in masks], multipliers.copy(), loss


def paper(samples):
    """(1/B) sum_n || Z[:, i] ||_2, over the tokens that each sample has."""
    return sum(np.sqrt((z.astype("float64") ** 2).sum(axis=0)) for z in samples) / len(
        samples
    )


def minitron(samples):
    """The mean of |Z| over the sequence, then L2 over the samples."""
    squares = [np.abs(z.astype("float64")).mean(axis=0) ** 2 for z in samples]
    return np.sqrt(sum(squares))


AGGREGATIONS = {"paper": paper, "minitron": minitron}
