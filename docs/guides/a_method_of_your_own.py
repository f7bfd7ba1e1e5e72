"""
Title: Write your own pruning method
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Choose the neurons by magnitude; the callback does everything else.
Accelerator: None
"""

"""
## Goal

You write a pruning method that keeps the neurons with the largest weights. Then you
compare it with random pruning and with the paper's method.

You need only a backend.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki
from keras_idea.methods import Decision, Method
from keras_idea.schedules import CubicWidth

"""
## What a method does

`IdeaPruneCallback(method=...)` takes a name, or an object of a subclass of
`ki.methods.Method`. The names are "sensitivity" (the paper's method), "activation",
"learned_mask" and "random". The callback narrows the model, keeps the optimizer
state, logs and checks. The method only decides which neurons stay.

The callback has no magnitude method, unlike `ki.shrink`. Many libraries prune by
magnitude, so it is a useful baseline. The method below chooses the neurons with the
largest weights once, at `begin_step`.

## Write the method

You define these three methods:

- `width_schedule` returns the FFN width that the logs show: the full width up to
  `begin_step`, then the target.
- `decision_step` returns the step after which the method decides, on the host. If it
  returns `None`, the scores of the layers decide at each step.
- `decide` is called once and returns one `Decision` per FFN, which holds the mask.
  `job.ffn` is the handle that `ki.find_ffns` returns, for stock layers too. The
  first `job.ffn.kernels` compute the neurons and have the shape `(D, F)`; here `up` and
  `gate`. The last one reads them and has the shape `(F, D)`; here `down`.
"""


class Magnitude(Method):
    """Keeps the neurons whose weights have the largest norm."""

    name = "magnitude"

    def width_schedule(
        self, hidden_dim, target_dim, begin_step, prune_steps, update_every
    ):
        return CubicWidth(hidden_dim, target_dim, begin_step, prune_steps=1)

    def decision_step(self, begin_step, prune_steps):
        return begin_step

    def decide(self, model, jobs):
        return [Decision(self.mask_of(job)) for job in jobs]

    def mask_of(self, job):
        *makers, down = map(keras.ops.convert_to_numpy, job.ffn.kernels)
        norms = sum((kernel**2).sum(0) for kernel in makers) + (down**2).sum(1)
        mask = np.zeros(norms.shape, "float32")
        mask[np.argsort(norms)[-job.target_dim :]] = 1.0
        return mask


"""
## Compare it with the paper's method

You train the same model on the same text for the same number of steps, with three
methods.
"""

STEPS = 240
corpus = ki.data.load_text("stdlib")
x, y = corpus.validation_windows(length=32, limit=256)


def bits_with(method):
    keras.utils.set_random_seed(0)
    config = ki.models.DecoderConfig(
        vocabulary_size=256,
        model_dim=32,
        num_layers=2,
        num_heads=4,
        hidden_dim=128,
        sequence_length=32,
    )
    model = ki.models.decoder(config)
    model.compile(
        keras.optimizers.AdamW(ki.CosineDecay(5e-3, 5e-5, STEPS, warmup_steps=20)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    prune = ki.IdeaPruneCallback(24, begin_step=120, prune_steps=60, method=method)
    model.fit(
        corpus.batches(seed=0, batch_size=16, length=32),
        steps_per_epoch=STEPS,
        shuffle=False,
        callbacks=[prune],
        verbose=0,
    )
    return model.evaluate(x, y, verbose=0) / np.log(2.0)


for method in ("random", Magnitude(), "sensitivity"):
    print(
        f"{getattr(method, 'name', method):>12}: {bits_with(method):.3f} bits per byte"
    )

"""
One seed of a tiny model proves little. `benchmarks/results/paper` reports more runs,
with standard errors.

## Good to know

- In a mixture of experts, the mask has one row per expert. Each row has the same number
  of ones.
- If the number of ones in a mask is not `target_dim`, the callback raises `ValueError`.

## Next steps

- Measure hidden activations: set `reads_hidden = True` and return one `Probe` per FFN.
  See `ki.methods.Activation` for an example.
- [Prune in your own training loop](custom_training_loop.md).
"""
