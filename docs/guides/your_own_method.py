"""
Title: Write your own pruning method
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/29
Description: Score the neurons by a formula of your own; the rest is done for you.
Accelerator: None
"""

"""
## Goal

You write a pruning method that ranks neurons by a score of your own. You use it while a
model trains, and to make a trained model smaller in one step. Then you compare it with
other methods.

You need only a backend.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops

import keras_idea as ki
from keras_idea.methods import Method

"""
## What a method does

`IdeaPruneCallback(method=...)` and `ki.shrink` take a name, or an object of
a subclass of `ki.methods.Method`. The names are "sensitivity" (the paper's method),
"activation", "magnitude", "random" and, for the callback alone, "learned_mask".
"activation" needs data: pass them to `shrink`, or `ki.methods.Activation(data)` to the
callback.

The method only ranks the neurons. The callback narrows the model, keeps the optimizer
state, logs and checks.

## Write the method

You define `score`. It is called in each training step, inside the compiled step, with
the handle of one FFN (as `ki.find_ffns` returns it, for stock layers too) and the
gradients of the step. It returns one number per neuron.

The method below is the Taylor score of whole neurons: how much the loss changes, to
first order, if a neuron is removed. The terms of a neuron are added up before the
absolute value is taken. The first `ffn.kernels` compute the neurons and have the shape
`(D, F)`; here `up` and `gate`. The last one reads them and has the shape `(F, D)`; here
`down`. Since a neuron's output passes through `down` alone, `down` is enough.

The callback ranks the neurons by a moving average of the scores.
`scoring = ki.methods.Scoring(ema_decay=0.9)` sets how long it remembers.
"""


class NeuronTaylor(Method):
    """Scores a neuron by the change of the loss without it, to first order."""

    name = "neuron_taylor"
    scoring = ki.methods.Scoring(ema_decay=0.9)

    def score(self, ffn, gradients):
        down = ffn.kernels[-1]
        return ops.abs(ops.sum(down * gradients.of(down), axis=1))


"""
## Compare it with the paper's method

You train the same model on the same text for the same number of steps, with four
methods.
"""

STEPS = 240
corpus = ki.data.open_text(paths="stdlib")
x, y = corpus.held_out_windows(32, limit=256)


def model_of(hidden_dim):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(256, 32)(ids)
    for _ in range(2):
        h = keras.layers.RMSNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(h, h, use_causal_mask=True)
        h = keras.layers.RMSNormalization()(x)
        x = x + ki.PrunableGatedFFN(hidden_dim)(h)
    logits = keras.layers.Dense(256)(keras.layers.RMSNormalization()(x))
    model = keras.Model(ids, logits)
    model.compile(
        keras.optimizers.AdamW(ki.CosineDecay(5e-3, 5e-5, STEPS, warmup_steps=20)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def bits_of(model):
    return model.evaluate(x, y, verbose=0) / np.log(2.0)


def bits_with(method):
    keras.utils.set_random_seed(0)
    model = model_of(128)
    prune = ki.IdeaPruneCallback(24, begin_step=120, prune_steps=60, method=method)
    model.fit(
        corpus.batches(seed=0, batch_size=16, length=32),
        steps_per_epoch=STEPS,
        shuffle=False,
        callbacks=[prune],
        verbose=0,
    )
    return bits_of(model)


for method in ("random", "magnitude", NeuronTaylor(), "sensitivity"):
    name = getattr(method, "name", method)
    print(f"{name:>13}: {bits_with(method):.3f} bits per byte")

"""
One seed of a tiny model proves little. `benchmarks/results/paper` reports more runs,
with standard errors.

## Use it without training

`ki.shrink` cuts a trained model in one step. It takes the mean of the score over the
batches of the data, and no weight changes meanwhile. Here the model is trained at full
width first.
"""

keras.utils.set_random_seed(0)
wide = model_of(128)
wide.fit(
    corpus.batches(seed=0, batch_size=16, length=32),
    steps_per_epoch=STEPS,
    shuffle=False,
    verbose=0,
)
print(f"{'128 neurons':>13}: {bits_of(wide):.3f} bits per byte")

batch = next(iter(corpus.batches(seed=1, batch_size=256, length=32)))
for method in ("random", "magnitude", NeuronTaylor(), "sensitivity", "activation"):
    small = ki.shrink(wide, {"neurons": 24}, batch, method)
    name = getattr(method, "name", method)
    print(f"{name:>13}: {bits_of(small):.3f} bits per byte")

"""
## Good to know

- A score may also have one row per kernel. `Scoring(matrix_reduce=...)` says how the
  rows are combined.
- In a mixture of experts, a score has one row per expert, and each expert keeps the
  same number of neurons.
- A method that decides once, on the host, defines `decision_step` and `importance`
  instead of `score`. See `ki.methods.Activation` for an example that measures hidden
  activations.

## Next steps

- [Prune in your own training loop](your_own_training_loop.md).
"""
