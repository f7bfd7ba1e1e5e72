"""
Title: A pruning method of your own
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/24
Description: Choose the neurons by magnitude; the callback does everything else.
Accelerator: None
"""

"""
## What a method is

`IdeaPruneCallback(method=...)` takes a name ("sensitivity", the paper's; "activation",
"learned_mask", "random") or an object of a subclass of `ki.methods.Method`. The callback
narrows, carries the optimizer's state, logs and checks; the method only says which neurons
stay.

Here is one that the package lacks: the neurons of largest weights stay, chosen once, at
`begin_step`. It is what many libraries do, so it is a baseline worth having.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki
from keras_idea.methods import Decision, Method
from keras_idea.schedules import CubicWidth

"""
## The method

- `width_schedule` is what the logs tell of the width: full up to `begin_step`, then the
  target.
- `decision_step` is when it decides, on the host; None would leave it to the layers' scores.
- `decide` is asked once and answers with a mask for each FFN. `job.ffn` is the handle that
  `ki.find_ffns` gives, of stock layers too: its kernels are those that make the neurons,
  `(D, F)`, here `up` and `gate`, and then the one that reads them, `(F, D)`, here `down`.
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
## Compared with the paper's

The same model, text and steps, with three methods.
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
One seed of a tiny model tells little; benchmarks/results/paper tells more, with errors.

## What to watch

- A method that measures hidden activations sets `reads_hidden = True` and hands out a
  `Probe` for each FFN; `ki.methods.Activation` is the example to read.
- Of a mixture of experts the mask has a row for each expert, with as many ones in each.
- A mask with another number of ones than `target_dim` raises `ValueError`.
"""
