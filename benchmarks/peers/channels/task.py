"""What every contestant is given: images, batches, rates, and the share that stays.

scikit-learn's digits: 1,797 images of 8 x 8 pixels. The wide network is trained once
for each seed; all contestants begin with its weights, then have the same steps.
"""

import dataclasses

import numpy as np
from sklearn.datasets import load_digits

SHARE = 0.25
BATCH = 64
TRAINED_ON = 1200
BETAS, EPSILON, WEIGHT_DECAY = (0.9, 0.999), 1e-7, 0.01
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.9


@dataclasses.dataclass(frozen=True)
class Stages:
    """Steps: the wide network's own, then pruning, then recovery."""

    wide: int = 180
    prune: int = 60
    recover: int = 120
    wide_rate: float = 3e-3
    rate: float = 2e-3

    @property
    def after(self):
        """int, the steps that each contestant has."""
        return self.prune + self.recover


def cosine(peak, step, steps):
    """The learning rate of a step."""
    return peak * 0.5 * (1.0 + np.cos(np.pi * step / steps))


def images():
    """((x, y) to train on, (x, y) held out): float32 `(n, 8, 8, 1)`, int64."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0 - 0.3).reshape(-1, 8, 8, 1).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order].astype("int64")
    return (x[:TRAINED_ON], y[:TRAINED_ON]), (x[TRAINED_ON:], y[TRAINED_ON:])


def batches(seed, steps):
    """The batches of a run, the same for everyone: lists of `(x, y)`."""
    (x, y), _ = images()
    rng = np.random.default_rng(seed)
    picks = [rng.choice(TRAINED_ON, BATCH, replace=False) for _ in range(steps)]
    return [(x[pick], y[pick]) for pick in picks]


def judged(logits, labels):
    """dict: accuracy and cross-entropy of logits."""
    logits = logits.astype("float64") - logits.max(-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return {
        "accuracy": float((logs.argmax(-1) == labels).mean()),
        "loss": float(-logs[np.arange(len(labels)), labels].mean()),
    }
