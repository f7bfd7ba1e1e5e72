"""Algorithm 1 of IDEA Prune in float64 NumPy, written from the paper.

Nothing here comes from the package. The model is a chain of residual FFNs, each with
a gate (three matrices) or without (two), and a linear head under a mean squared error,
differentiated by hand. Kernels are stored as Keras stores them: up and gate (D, F),
down (F, D).

The paper's masks may in principle pick a neuron whose weights are all zero; its
gradients are zero too, so such a slot is wasted for good. As DESIGN.md reads it,
a pruned neuron is never picked again.
"""

import numpy as np


def silu(z):
    return z / (1 + np.exp(-z))


def silu_slope(z):
    s = 1 / (1 + np.exp(-z))
    return s * (1 + z * (1 - s))


def gradients(weights, x, y):
    """Gradients of the mean squared error at `weights`, and the loss."""
    *ffns, head = weights
    caches = []
    for up, *gate, down in ffns:
        a, b = x @ up, x @ gate[0] if gate else 1.0
        hidden = silu(a) * b
        caches.append((x, a, b, hidden))
        x = x + hidden @ down
    error = x @ head - y
    loss = np.mean(error**2)
    d_out = 2 * error / error.size
    result = [np.einsum("btd,bto->do", x, d_out)]
    d_x = d_out @ head.T
    for (up, *gate, down), (x_in, a, b, hidden) in zip(
        reversed(ffns), reversed(caches), strict=True
    ):
        d_down = np.einsum("btf,btd->fd", hidden, d_x)
        d_hidden = d_x @ down.T
        d_a, d_b = d_hidden * b * silu_slope(a), d_hidden * silu(a)
        d_up = np.einsum("btd,btf->df", x_in, d_a)
        d_x = d_x + d_a @ up.T
        d_gate = [np.einsum("btd,btf->df", x_in, d_b) for _ in gate]
        for matrix in gate:
            d_x = d_x + d_b @ matrix.T
        result.insert(0, [d_up, *d_gate, d_down])
    return result, loss


class SGD:
    def __init__(self, rate):
        self.rate = rate

    def step(self, key, w, g, t):
        return w - self.rate * g


class AdamW:
    """Adam of Kingma & Ba in the form with epsilon-hat (end of their section 2).

    The paper gives no epsilon. Weight decay is decoupled.
    """

    def __init__(self, rate, decay, epsilon, beta_1=0.9, beta_2=0.999):
        self.rate, self.decay, self.epsilon = rate, decay, epsilon
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.m, self.v = {}, {}

    def step(self, key, w, g, t):
        self.m[key] = self.beta_1 * self.m.get(key, 0) + (1 - self.beta_1) * g
        self.v[key] = self.beta_2 * self.v.get(key, 0) + (1 - self.beta_2) * g**2
        rate = self.rate * np.sqrt(1 - self.beta_2**t) / (1 - self.beta_1**t)
        w = w - self.rate * self.decay * w
        return w - rate * self.m[key] / (np.sqrt(self.v[key]) + self.epsilon)


def kept(t, full, target, begin, steps):
    """The cubic of PAPER.md, as a whole number of neurons."""
    if t <= begin:
        return full
    if t >= begin + steps:
        return target
    share = (1 - (t - begin) / steps) ** 3
    return int(np.floor(target + (full - target) * share + 0.5))


def run(weights, batches, optimizer, target, begin, steps, decay, f1, f2):
    """Algorithm 1; yields (weights, scores, masks, loss) after every step."""
    reduce = {"mean": np.mean, "max": np.max}
    *ffns, head = [
        np.asarray(w, "float64")
        if not isinstance(w, list)
        else [np.asarray(v, "float64") for v in w]
        for w in weights
    ]
    scores = [np.zeros((len(ffn), *ffn[-1].shape)) for ffn in ffns]
    masks = [np.ones(len(ffn[-1])) for ffn in ffns]
    for t, (x, y) in enumerate(batches, start=1):
        grads, loss = gradients([*ffns, head], x.astype("float64"), y.astype("float64"))
        for i, (ffn, grad) in enumerate(zip(ffns, grads, strict=False)):
            # |gradient * weight|, both before the update; a row is a neuron.
            newest = [np.abs(g * w) for g, w in zip(grad, ffn, strict=True)]
            newest = np.stack([*(entrance.T for entrance in newest[:-1]), newest[-1]])
            scores[i] = (1 - decay) * newest + decay * scores[i]
            c = reduce[f2](reduce[f1](scores[i], axis=2), axis=0)
            r = kept(t, len(c), target, begin, steps)
            alive = [k for k in np.argsort(-c, kind="stable") if masks[i][k]]
            masks[i] = np.isin(np.arange(len(c)), alive[:r]).astype("float64")
            new = [
                optimizer.step((i, k), w, g, t)
                for k, (w, g) in enumerate(zip(ffn, grad, strict=True))
            ]
            entrances = [entrance * masks[i] for entrance in new[:-1]]
            ffns[i] = [*entrances, new[-1] * masks[i][:, None]]
        head = optimizer.step("head", head, grads[-1], t)
        yield [*ffns, head], [s.copy() for s in scores], [m.copy() for m in masks], loss
