"""
Title: Prune channels and attention heads
Author: the keras-idea authors
Date created: 2026/11/25
Last modified: 2026/11/29
Description: Channels of a convolutional network; heads and neurons under one budget.
Accelerator: None
"""

"""
## Goal

You prune the channels of a trained convolutional backbone in the `fit` of a new task.
Then you prune neurons and attention heads of a language model to one budget of
parameters, in `fit` and in one step.

You need a backend and `pip install "keras-idea[hub,cli]" scikit-learn`.
"""

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import keras_hub
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import keras_idea as ki

keras.utils.set_random_seed(0)
nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

"""
## A trained backbone

A *channel* is one output of a convolution. Layers that are joined by an `Add` lose the
same channels, so a residual network keeps its form.

In practice the backbone is `keras.applications.ResNet50(include_top=False)` with its
weights. Here it is a small residual network that learns the digits 0 to 5.
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
    model.compile(keras.optimizers.AdamW(rate), nats, metrics=["accuracy"])
    return model


backbone = make_backbone()
teacher = compiled(keras.Sequential([backbone, layers.Dense(6)]), steps=102)
teacher.fit(images[first], labels[first], batch_size=32, epochs=3, verbose=0)

"""
## Prune channels in the `fit` of a new task

The new task is the digits 6 to 9. `ki.explain` follows the data into the backbone.
`targets={"channels": 0.25}` keeps a quarter of the channels of each group. Scores of
single batches are noisy for convolutions, so `ema_decay=0.9` averages more of them.
"""

digits = images[second], labels[second] - 6
held_out = np.arange(len(digits[0])) % 3 == 0
testing = tuple(part[held_out] for part in digits)
training = tuple(part[~held_out] for part in digits)

BATCH, EPOCHS = 16, 9
steps = -(-len(training[0]) // BATCH)

inputs = keras.Input((8, 8, 1))
features = layers.Dropout(0.2)(backbone(inputs))
outputs = layers.Dense(4, name="head")(features)
model = compiled(keras.Model(inputs, outputs), EPOCHS * steps)
explained = ki.explain(model)
print(explained)

model.save("wide.keras")
prune = ki.IdeaPruneCallback(
    targets={"channels": 0.25},
    begin_step=2 * steps,
    prune_steps=4 * steps,
    method=ki.methods.Sensitivity(ema_decay=0.9),
)
history = model.fit(
    *training,
    batch_size=BATCH,
    epochs=EPOCHS,
    validation_data=testing,
    callbacks=[prune],
    verbose=2,
)

"""
The file is smaller, although it also holds the optimizer state. It loads without this
package: the second process cannot import it.
"""

model.save("narrow.keras")
for name in ("wide", "narrow"):
    size = pathlib.Path(f"{name}.keras").stat().st_size
    print(f"{name}: {size / 1e3:.0f} kB")

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
mine, theirs = (m.predict(testing[0], verbose=0) for m in (model, loaded))
difference = np.abs(theirs - mine).max()
print("loaded back, off by at most", difference)
accuracy = loaded.evaluate(*testing, verbose=0)[1]
print(f"accuracy on held-out images: {accuracy:.3f}")

"""
A quarter of the channels leaves a sixteenth of the multiplications, but not a sixteenth
of the time. For ResNet50 and MobileNetV2 with half of their channels, see
[the times](../costs_and_benefits.md#convolutional-networks).

- A frozen backbone raises `ValueError`. A frozen `BatchNormalization` is narrowed.
- Without training: `ki.shrink(model, {"channels": 0.5}, data, refit=True)`.
- Prune a KerasHub image classifier as `ki.as_functional(classifier)`.

## A language model whose heads can be pruned

This trains a small Mistral. Any [family](../families.md) whose config holds `head_dim`
supports pruning of heads. For a Llama 2 or Llama 3, `ki.hub.as_mistral` makes an
equal Mistral first; GPT-2 cannot hold fewer heads.

One unit is a key/value head with all query heads that read it.
"""

LENGTH = 32
corpus = ki.data.open_text(paths="stdlib")  # tokens are bytes


def as_inputs(ids):
    return {"token_ids": ids, "padding_mask": np.ones_like(ids)}


def train(model, steps, peak, start, callbacks=()):
    """Trains for some steps, with one cosine of the learning rate."""
    rate = ki.CosineDecay(peak, peak / 100, steps, warmup_steps=10)
    model.compile(keras.optimizers.AdamW(rate), nats, weighted_metrics=None)
    stream = corpus.batches(seed=0, batch_size=BATCH, length=LENGTH, start_step=start)
    # Arrays or `tf.data` work with `model.fit`; a generator needs Keras's own `fit`.
    keras.Model.fit(
        model,
        ((as_inputs(x), y) for x, y in stream),
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=list(callbacks),
        verbose=2,
    )


lm = keras_hub.models.MistralCausalLM(
    backbone=keras_hub.models.MistralBackbone(
        vocabulary_size=256,
        num_layers=2,
        num_query_heads=8,
        num_key_value_heads=4,
        hidden_dim=32,
        intermediate_dim=96,
        sliding_window=LENGTH,
    ),
    preprocessor=None,
)
train(lm, 150, 3e-3, start=0)
lm.save_to_preset("checkpoint")
for group in ki.find_groups(lm):
    print(group.name, group.hidden_dim, group.kind)

"""
## Prune neurons and heads in `fit`, by one ratio

With several kinds and a budget, the callback finds the one fraction that all kinds keep. The
model is trained, so pruning starts at once, at a third of the peak learning rate.
"""

BUDGET = lm.backbone.count_params() * 2 // 3
x, y = corpus.held_out_windows(LENGTH, limit=256)


def bits(model):
    logits = model.predict(as_inputs(x), batch_size=BATCH, verbose=0)
    return float(nats(y, logits)) / float(np.log(2.0))


def load():
    return keras_hub.models.CausalLM.from_preset("checkpoint", preprocessor=None)


in_fit = load()
pruning = ki.IdeaPruneCallback(
    begin_step=0,
    prune_steps=50,
    targets=["neurons", "kv_groups"],
    target_parameters=BUDGET,
)
train(in_fit, 150, 1e-3, start=150, callbacks=[pruning])

"""
## Prune in one step

`ki.shrink` cuts the model to the same budget, without training. It can also remove
blocks, and features of the residual stream, which `fit` cannot. With `refit=True`, it
also fits the layers that read the remaining units, by least squares.
"""

windows = next(iter(corpus.batches(seed=1, batch_size=256, length=LENGTH)))
data = (as_inputs(windows[0]), windows[1])
kinds = ["neurons", "kv_groups"]
whole = load()
whole.compile(loss=nats)
only_cut = bits(ki.shrink(whole, kinds, data, target_parameters=BUDGET))
in_one_step = ki.shrink(whole, kinds, data, refit=True, target_parameters=BUDGET)
before_training = bits(in_one_step)
train(in_one_step, 150, 1e-3, start=150)

"""
## Compare and save

Bits per byte; lower is better. Another seed can change the results by as much as these
differences.
"""

for name, bits_per_byte, size in (
    ("the checkpoint", bits(load()), lm.backbone.count_params()),
    ("in fit", bits(in_fit), in_fit.backbone.count_params()),
    ("in one step", bits(in_one_step), in_one_step.backbone.count_params()),
):
    print(f"{name}: {bits_per_byte:.3f} bits per byte, {size:,} parameters")
print(f"in one step, before it trained: {before_training:.3f}")
print(f"and without the refit: {only_cut:.3f}")

in_fit.save_to_preset("smaller")
smaller = keras_hub.models.CausalLM.from_preset("smaller", preprocessor=None)
print(smaller.backbone.num_key_value_heads, "of 4 key/value heads")

"""
In a small Mistral of six blocks (three seeds,
[record](../../benchmarks/results/recover_shapes.md), 2026-11-26), shapes with fewer
blocks were the best: at half of the parameters, by 0.12 bits per byte compared with
pruning FFNs alone. Pruning FFNs alone was better in `fit` than in one step, by 0.02 to
0.05.

## Next steps

- [Prune a released checkpoint](../checkpoint.md), with the original model as teacher.
- [Choose the settings](../settings.md) for your model and tokens.
"""
