"""
Title: Prune any Keras model
Author: the keras-idea authors
Date created: 2026/11/24
Last modified: 2026/11/26
Description: Prune a text classifier of stock layers with one callback; Keras saves it.
Accelerator: None
"""

"""
## Goal

You prune a text classifier of stock layers with one callback, and change nothing in the
model. At the end, you have a narrow model of the same layers, which Keras itself saves
and loads.

You need only a backend.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## How it works

You pass `ki.IdeaPruneCallback` to `fit`. The callback works in four steps:

1. It finds the `Dense` layers whose neurons can be pruned.
2. It ranks these neurons while the model trains.
3. It masks the least important neurons: their weights become zero.
4. It slices the kernels and the optimizer state. The same `fit` continues with a narrow
   model.

## Make a model of stock layers

This is a small transformer that classifies texts, as on keras.io. Its block is an
ordinary subclassed layer, which contains no pruning code.
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
## See what can be pruned

`ki.explain` lists every `Dense` and `EinsumDense` layer. For each layer it shows the
neurons or heads that can be pruned, or the reason why there are none.
"""

explained = ki.explain(model)
print(explained)

"""
The first FFN is the one in the block. It has the name of the `Sequential` that holds
it. The second is the hidden layer of the classifier. The attention heads are not pruned
here; the guide [neurons and heads under one budget](several_axes.md) prunes them too.

## Train and prune in one `fit`

The texts are random words. Four of the words are good and four are bad. The label says
whether the good or the bad words are in the majority.

`target_dim=0.25` keeps a quarter of the neurons of each FFN. `groups` chooses the FFNs.
Here it chooses the FFN in the block, so the classifier keeps its 20 neurons. Without
`groups`, every FFN is pruned.
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
## Save the model with Keras

After `fit`, the model is narrow: its `Dense` layers in the block have 16 units. It has
no variables and no classes of this package. You use Keras's own `save`, `export` and
`quantize`. The process that loads the file does not need to import `keras_idea`.

The config of the block follows the new width too: `ff_dim` is 16 in the file.
"""

block = model.get_layer("block")
print([layer.units for layer in block.ffn.layers], model.count_params(), "parameters")

model.save("narrow.keras")
loaded = keras.models.load_model("narrow.keras")
difference = loaded.predict(texts, verbose=0) - model.predict(texts, verbose=0)
print("loaded back, off by at most", np.abs(difference).max())
print("ff_dim in the file:", loaded.get_layer("block").get_config()["ff_dim"])

"""
## Good to know

- The outputs of a `Dense` layer can be pruned under one condition. They must reach
  other `Dense` layers, and nothing else, through operations on each neuron alone. Such
  operations are activations, sums, products, `Dropout` and `BatchNormalization`;
  `softmax` and `LayerNormalization` are not. `ki.explain(model)` gives the reason for
  each layer that is not pruned.
- An integer `target_dim` is the width of every chosen FFN. If your FFNs have different
  widths, use a fraction or `groups`.
- With `compact="off"` the model stays wide, and all weights of the pruned neurons are
  exactly zero. Then call `ki.compact(model)`, which returns the narrow model. If you
  train the wide model further without the callback, the optimizer's moments may make
  pruned neurons active again.
- If a block makes its layers from a number, such as `ff_dim` here, that number is in
  its config, and follows the width. If a config cannot follow, `fit` warns that the
  saved file could not be loaded.

## Next steps

- [Prune a KerasHub model](keras_hub_model.md).
- [Use `PrunableGatedFFN`](your_own_model.md), a gated FFN layer that shows its mask and
  its scores.
"""
