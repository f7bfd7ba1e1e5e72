"""
Title: Prune any Keras model
Author: the keras-idea authors
Date created: 2026/11/24
Last modified: 2026/11/24
Description: A text classifier of stock layers, pruned by one callback and saved by Keras.
Accelerator: None
"""

"""
## What happens

You pass one callback to `fit`, and change nothing in your model. `ki.IdeaPruneCallback` finds
the `Dense` layers whose neurons can be removed, ranks these neurons while the model trains, and
sets the least important ones to zero. Then it slices the kernels and the optimizer's state, and
the same `fit` continues with a narrow model of the same stock layers.

You need nothing beyond a backend.

## Setup
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## A model of stock layers

A small transformer that classifies texts, as on keras.io. Its block is an ordinary subclassed
layer: nothing in it knows about pruning.
"""


@keras.saving.register_keras_serializable("guide")
class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.att = layers.MultiHeadAttention(num_heads, embed_dim // num_heads)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization()
        self.layernorm2 = layers.LayerNormalization()
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def build(self, shape):
        self.att.build(shape, shape)
        for layer in (self.ffn, self.layernorm1, self.layernorm2):
            layer.build(shape)

    def call(self, inputs):
        attended = self.dropout1(self.att(inputs, inputs))
        x = self.layernorm1(inputs + attended)
        return self.layernorm2(x + self.dropout2(self.ffn(x)))


VOCABULARY, LENGTH = 64, 16

inputs = keras.Input((LENGTH,), dtype="int32")
x = layers.Embedding(VOCABULARY, 16)(inputs)
x = TransformerBlock(16, num_heads=2, ff_dim=64, name="block")(x)
x = layers.GlobalAveragePooling1D()(x)
x = layers.Dense(20, activation="relu", name="hidden")(x)
outputs = layers.Dense(2, activation="softmax")(x)
model = keras.Model(inputs, outputs)

"""
## What can be pruned

`ki.explain` lists every `Dense` and `EinsumDense` layer: the neurons or heads that can be pruned,
or the reason why there are none.
"""

explained = ki.explain(model)
print(explained)

"""
The first FFN is the one in the block: the `Sequential` that holds it gives it its name. The
second is the hidden layer of the classifier. The heads of the attention stay here; the guide on
several axes prunes them too.

## One `fit`

The texts are random words, made here: four of the words are good, four are bad, and the label
says which are in the majority.

`target_dim=0.25` keeps a quarter of the neurons of each FFN. `groups` chooses the FFNs: here the
one in the block, so the classifier keeps its 20 neurons. Without `groups`, all of them are
pruned.
"""

rng = np.random.default_rng(0)
texts = rng.integers(1, VOCABULARY, (640, LENGTH))
balance = np.isin(texts, [1, 2, 3, 4]).sum(1) - np.isin(texts, [5, 6, 7, 8]).sum(1)
texts, labels = texts[balance != 0], (balance > 0)[balance != 0].astype("int32")

BATCH, EPOCHS = 32, 6
epoch_steps = len(texts) // BATCH
texts, labels = texts[: epoch_steps * BATCH], labels[: epoch_steps * BATCH]

model.compile(
    keras.optimizers.AdamW(3e-3),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
prune = ki.IdeaPruneCallback(
    target_dim=0.25,
    begin_step=2 * epoch_steps,
    prune_steps=2 * epoch_steps,
    groups=lambda ffn: ffn.name.startswith("block"),
)
history = model.fit(
    texts, labels, batch_size=BATCH, epochs=EPOCHS, callbacks=[prune], verbose=2
)

"""
## A stock model, saved by Keras

The model that `fit` returns is narrow: its `Dense` layers have 16 units. It has no variables
and no classes of this package, so `save`, `export` and `quantize` are Keras's own, and the
process that loads the file does not need to import `keras_idea`. The block's config follows
too: `ff_dim` is 16 in the file.
"""

block = model.get_layer("block")
print([layer.units for layer in block.ffn.layers], model.count_params(), "parameters")

model.save("narrow.keras")
loaded = keras.models.load_model("narrow.keras")
difference = loaded.predict(texts, verbose=0) - model.predict(texts, verbose=0)
print("loaded back, off by at most", np.abs(difference).max())
print("ff_dim in the file:", loaded.get_layer("block").get_config()["ff_dim"])

"""
## What to watch

- The outputs of a `Dense` layer are neurons that can be pruned if they reach other `Dense`
  layers, and nothing else, through operations on each neuron alone: activations, sums,
  products, `Dropout`. A `softmax` or a normalization between them is not such an operation.
  `ki.explain(model)` tells you the reason for each layer that is left out.
- An integer `target_dim` is the width of every chosen FFN. Use a fraction or `groups` if your
  FFNs have different widths.
- With `compact="off"` the model stays wide, and all weights of the pruned neurons are exactly
  zero. Call `ki.compact(model)` next: it returns the narrow model. If you train the wide model
  further without the callback, the optimizer's moments may bring pruned neurons back.
- A block that makes its layers from a number has it in its config, as `ff_dim` here, and the
  number follows the width. If a config cannot follow, `fit` warns that the saved file could not
  be loaded.

Next: the guide on KerasHub models, or the guide on a gated FFN layer that shows its mask and
its scores, "Prune a model of your own while it trains".
"""
