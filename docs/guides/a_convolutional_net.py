"""
Title: Prune a convolutional network
Author: the keras-idea authors
Date created: 2026/11/27
Last modified: 2026/11/27
Description: Reuse a trained backbone for a new task, and prune its channels in the same fit.
Accelerator: None
"""

"""
## Goal

You have a backbone that was trained on one task. You train it on another task, prune
three quarters of its channels in the same `fit`, and save a stock Keras model whose
file is smaller and which predicts faster.

You need a backend and `pip install scikit-learn`, which brings the images.
"""

import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## How it works

A *channel* is one output of a convolution. The callback masks the least important
channels while the model trains: the weights that read them become zero. Then it slices
the kernels, the `BatchNormalization` layers and the optimizer state, and the same `fit`
continues with narrow layers.

Layers that are joined by an `Add` lose the same channels. So a residual network keeps
its form.

## A trained backbone

In practice this is `keras.applications.ResNet50(include_top=False, pooling="avg")` with
its weights. Here it is a small residual network that learns the digits 0 to 5, in a few
seconds.
"""

images, labels = load_digits(return_X_y=True)
images = (images / 16.0).reshape(-1, 8, 8, 1).astype("float32")
first, second = labels <= 5, labels > 5


def convolution(x, filters, strides=1):
    x = layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def make_backbone():
    inputs = keras.Input((8, 8, 1))
    x = convolution(inputs, 48)
    for filters, strides in ((48, 1), (96, 2)):
        shortcut = layers.Conv2D(filters, 1, strides)(x)
        x = convolution(convolution(x, filters, strides), filters)
        x = layers.Add()([x, shortcut])
    outputs = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, outputs, name="backbone")


def compiled(model, steps):
    rate = keras.optimizers.schedules.CosineDecay(5e-3, steps)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate), loss, metrics=["accuracy"])
    return model


backbone = make_backbone()
teacher = compiled(keras.Sequential([backbone, layers.Dense(6)]), steps=102)
teacher.fit(images[first], labels[first], batch_size=32, epochs=3, verbose=2)

"""
## A new model around it

The new task is the digits 6 to 9, one in three of them held out. The backbone is one
layer of the new model, as in Keras's guide to transfer learning.
"""

x, y = images[second], labels[second] - 6
held_out = np.arange(len(x)) % 3 == 0
train, test = (x[~held_out], y[~held_out]), (x[held_out], y[held_out])

BATCH, EPOCHS = 16, 9
steps = -(-len(train[0]) // BATCH)

inputs = keras.Input((8, 8, 1))
features = layers.Dropout(0.2)(backbone(inputs))
outputs = layers.Dense(4, name="head")(features)
model = compiled(keras.Model(inputs, outputs), EPOCHS * steps)

"""
## See what can be pruned

`ki.explain` follows the data into the backbone. A group holds the channels that are
pruned together.
"""

explained = ki.explain(model)
print(explained)

"""
## Train and prune in one `fit`

`targets={"channels": 0.25}` keeps a quarter of the channels of each group. The scores
of single batches are noisy for convolutions, so `ema_decay=0.9` averages them over more
steps than the default.
"""

model.save("wide.keras")
wide = keras.models.load_model("wide.keras", compile=False)

prune = ki.IdeaPruneCallback(
    targets={"channels": 0.25},
    begin_step=2 * steps,
    prune_steps=4 * steps,
    method=ki.methods.Sensitivity(ema_decay=0.9),
)
history = model.fit(
    *train,
    batch_size=BATCH,
    epochs=EPOCHS,
    validation_data=test,
    callbacks=[prune],
    verbose=2,
)

"""
## Save it: the file is smaller

The narrow file also holds the optimizer state, which is sliced with the weights. The
wide file was saved before the first step and holds none.
"""

model.save("narrow.keras")
files = {"wide": wide, "narrow": model}
for name, each in files.items():
    size = pathlib.Path(f"{name}.keras").stat().st_size
    print(f"{name}: {each.count_params():,} parameters, {size / 1e3:.0f} kB")

"""
The file loads without this package. This process cannot import it:
"""

code = "; ".join(
    [
        "import sys",
        "sys.modules['keras_idea'] = None",
        "import keras",
        "model = keras.models.load_model('narrow.keras')",
        "convolutions = model.get_layer('backbone').layers",
        "print([c.filters for c in convolutions if hasattr(c, 'filters')])",
    ]
)
print(subprocess.check_output([sys.executable, "-W", "ignore", "-c", code], text=True))
loaded = keras.models.load_model("narrow.keras")
difference = np.abs(loaded.predict(x, verbose=0) - model.predict(x, verbose=0)).max()
print("loaded back, off by at most", difference)
print(f"accuracy on held-out images: {loaded.evaluate(*test, verbose=0)[1]:.3f}")

"""
## It predicts faster

Both models take turns, so that a busy machine slows both. The first turn compiles.
"""

seconds = {name: [] for name in files}
for _ in range(12):
    for name, each in files.items():
        start = time.perf_counter()
        each.predict_on_batch(images[:512])
        seconds[name].append(time.perf_counter() - start)
typical = {name: np.median(each[1:]) for name, each in seconds.items()}
print(f"narrow / wide: {typical['narrow'] / typical['wide']:.2f} of the time")

"""
A quarter of the channels leaves about a sixteenth of the multiplications, but not a
sixteenth of the time: reading the images, normalization and activations cost the same
per channel, and the processor computes narrow layers less efficiently. For ResNet50 and
MobileNetV2 with half of their channels, see
[what pruning costs](../speed.md#convolutional-networks).

## Good to know

- To prune only some layers, pass `groups=lambda group: ...` to the callback.
- A frozen backbone (`trainable = False`) raises `ValueError`, because its kernels would
  have to change. Unfreeze it, or choose other groups. A frozen `BatchNormalization` is
  narrowed with its channels.
- For one step without training, use
  `ki.shrink(model, {"channels": 0.5}, data, refit=True)`.
- Prune a KerasHub image classifier as `ki.as_functional(classifier)`.
- Channels that a `LayerNormalization` or a `softmax` mixes stay. `ki.explain(model)`
  gives the reason for each convolution that is left out.

## Next steps

- [What can be pruned](../good_to_know.md#what-can-be-pruned).
- [Prune neurons and heads under one budget](several_axes.md): channels can be in the
  same budget.
"""
