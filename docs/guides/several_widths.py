"""
Title: Train several widths in one run
Author: the keras-idea authors
Date created: 2026/11/27
Last modified: 2026/11/27
Description: Train three widths of a model jointly, from nothing, and save each alone.
Accelerator: None
"""

"""
## Goal

You need one model in three sizes. You train all three in one `fit`, plot the loss of
each width, and save each as a stock Keras model.

You need a backend and `pip install "keras-idea[cli]"`.
"""

import os
import subprocess
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki
from keras_idea.plot import COLORS, dress, figure

keras.utils.set_random_seed(0)

"""
## How it works

`ElasticCallback` draws a width for each step. At a width of 32, each FFN computes with
its first 32 neurons only, so the step costs what a model of that width costs. All
widths share the other weights.

The first neurons are trained at each width, the last ones only at full width. A model
that starts at random needs no sorting (`begin_step=0`, the default). For a trained
model, set `begin_step=100`: the neurons are then sorted by importance at step 100.

## The model

A small language model of bytes, from Keras's own layers.
"""

WIDE, WIDTHS = 128, {"small": 32, "medium": 64}
STEPS, EPOCHS, LENGTH = 360, 12, 32
corpus = ki.data.load_text("stdlib")
held_out = corpus.validation_windows(length=LENGTH, limit=256)


def language_model(neurons):
    inputs = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(256, 32)(inputs)
    for _ in range(2):
        seen = keras.layers.RMSNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(seen, seen, use_causal_mask=True)
        seen = keras.layers.RMSNormalization()(x)
        hidden = keras.layers.Dense(neurons, activation="gelu")(seen)
        x = x + keras.layers.Dense(32)(hidden)
    return keras.Model(inputs, keras.layers.Dense(256)(x))


def train(model, callbacks=()):
    cosine = keras.optimizers.schedules.CosineDecay
    rate = cosine(0.0, STEPS - 20, warmup_target=1e-2, warmup_steps=20)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate), loss)
    return model.fit(
        corpus.batches(seed=0, batch_size=16, length=LENGTH),
        steps_per_epoch=STEPS // EPOCHS,
        epochs=EPOCHS,
        validation_data=held_out,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=0,
    ).history


"""
## Train all widths

By default the widths take turns: small, medium and full each get a third of the steps.
The logs of each epoch contain the loss of each width, in training and on the held-out
data. `val_loss` is that of full width.
"""

model = language_model(WIDE)
elastic = ki.ElasticCallback(WIDTHS)
history = train(model, [elastic])
print(*sorted(history), sep="\n")

"""
## Plot the widths

Loss in bits per byte; lower is better.
"""

LOGS = {"small": "val_small_loss", "medium": "val_medium_loss", "full": "val_loss"}
epochs = np.arange(1, EPOCHS + 1)
with figure("widths.png", 7, 4, "Three widths, one run", nrows=1) as axis:
    for color, (name, log) in zip(COLORS, LOGS.items(), strict=False):
        bits = np.array(history[log]) / np.log(2.0)
        axis.plot(epochs, bits, color=color, label=f"{name}: {bits[-1]:.3f}")
    axis.set_xlabel("epoch")
    axis.set_ylabel("bits per byte, held out")
    axis.legend(frameon=False)
    dress(axis)

for name, log in LOGS.items():
    print(f"{name}: {history[log][-1] / np.log(2.0):.3f} bits per byte")

"""
## Slice and save

`elastic.sliced(name)` returns a new stock model of the first neurons. It needs no
training of its own. `ki.sliced(model, 48)` returns any other width, which was not
trained.
"""

for name in WIDTHS:
    elastic.sliced(name).save(f"{name}.keras")
model.save("full.keras")

"""
The files load without this package. This process cannot import it:
"""

code = "; ".join(
    [
        "import sys",
        "sys.modules['keras_idea'] = None",
        "import keras",
        "model = keras.models.load_model('medium.keras')",
        "print([layer.units for layer in model.layers if hasattr(layer, 'units')])",
    ]
)
print(subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True))
loaded = keras.models.load_model("medium.keras")
loss = loaded.evaluate(*held_out, verbose=0)
print(f"loaded: {loss / np.log(2.0):.3f} bits per byte")

"""
## Compare with one model of the middle width

What do you lose? Train the middle width alone, for the same number of steps. It costs
slightly less than the whole joint run, whose mean width is 75. So the rival spends on
one width nearly what the joint run spends on three.
"""

alone = train(language_model(WIDTHS["medium"]))
bits_alone = alone["val_loss"][-1] / np.log(2.0)
print(f"trained alone: {bits_alone:.3f} bits per byte")
print(f"medium of the joint run: {loss / np.log(2.0):.3f} bits per byte")

"""
This is one seed and a short run. In our study of three widths at equal total FLOPs, with
5 seeds, joint training was better than one run with branches by 0.041–0.044 bits per
byte, and better than three models from scratch by 0.077–0.140
([when does it pay](../when_does_it_pay.md#trained-jointly)). The study used its own
code. If you need only one width, train that width: with all FLOPs, it was better than the
joint model by about 0.05 at full width, and by 0.07 at the narrowest.

## What is not possible

- Attention heads keep their number, and so do channels of convolutions.
- With Muon, Adafactor and Lamb, a step at a width differs from the step of a narrow
  model, because they look at whole matrices.
- One `fit` takes an `ElasticCallback` or an `IdeaPruneCallback`, not both.
- A training step of your own, outside `fit` and `train_on_batch`, knows no width and
  raises `ValueError`.

## Next steps

- [Prune neurons and heads under one budget](several_axes.md).
- If you choose the widths later, use branches: examples/one_run_branches.py.
"""
