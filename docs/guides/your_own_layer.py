"""
Title: Use a layer that shows its pruning state
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Use a gated FFN layer that shows its mask, its scores and its width.
Accelerator: None
"""

"""
## Goal

You train a wide model and prune it in the middle of `fit`. You use `PrunableGatedFFN`,
a gated feed-forward network (FFN) that shows its `mask`, `scores` and `width`.

You need only a backend. If your model has `Dense` layers, start with [Prune any Keras
model](../any_keras_model.md): they are pruned in the same way.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## How it works

In the middle of `fit`, the callback masks the least important neurons, a few at a time.
Then it slices the kernels and the optimizer state, and the same `fit` continues with a
narrow model.

The FFN computes `down(silu(up(x)) * gate(x))`. A neuron is a column of `up` and of
`gate` with a row of `down`. Training measures each neuron's importance: the mean of
|weight × gradient| over each of its three parts, then the largest, smoothed over
steps. The mask is saved with the model and applies to all further training.

## Make a model

`PrunableGatedFFN` replaces your FFN; everything else is plain Keras. For an FFN without
a gate, use `PrunableFFN`. The model predicts the next byte of a text, here of Keras's
own source.
"""

source = "".join(
    open(module.__file__, encoding="utf-8").read()
    for module in (keras.src.layers.layer, keras.src.trainers.trainer)
)
text = np.frombuffer(source.encode("utf-8", "ignore"), "uint8").astype("int32")
windows = np.lib.stride_tricks.sliding_window_view(text, 33)[::8]
x, y = windows[:, :-1], windows[:, 1:]


def make_model(neurons):
    inputs = keras.Input((32,), dtype="int32")
    h = keras.layers.Embedding(256, 32)(inputs)
    for _ in range(2):
        seen = keras.layers.LayerNormalization()(h)
        h = h + keras.layers.MultiHeadAttention(4, 8)(seen, seen, use_causal_mask=True)
        h = h + ki.PrunableGatedFFN(neurons)(keras.layers.LayerNormalization()(h))
    return keras.Model(inputs, keras.layers.Dense(256)(h))


model = make_model(neurons=128)

"""
## Train and prune in one `fit`

The wide stage takes half of the steps, the pruning stage a quarter, and the recovery
stage a quarter, all under one cosine. `ki.CosineDecay` is the paper's schedule. Any
schedule and any optimizer of Keras works.
"""

total_steps = 300
schedule = ki.CosineDecay(3e-3, 3e-5, total_steps=total_steps, warmup_steps=20)
model.compile(
    keras.optimizers.AdamW(schedule),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
prune = ki.IdeaPruneCallback(
    target_dim=48,
    begin_step=total_steps // 2,
    prune_steps=total_steps // 4,
)
history = model.fit(
    x,
    y,
    batch_size=32,
    steps_per_epoch=50,
    epochs=total_steps // 50,
    callbacks=[prune],
    verbose=2,
)

"""
The logs contain the mean FFN width and the fraction of pruned neurons:
"""

for epoch in range(total_steps // 50):
    print(epoch, {name: history.history[name][epoch] for name in ("width", "loss")})

"""
## Compact and save the model

The FFNs of the model are narrow already. `compact` replaces them with `GatedFFN`
layers, which have three kernels and no pruning state. `GatedFFN` is a layer of this
package, so import `keras_idea` before you load the file.

To serve the model without this package, use Keras's `narrow.export(path)`, or build
your FFNs from `Dense` layers.
"""

narrow = ki.compact(model)
print([ffn.hidden_dim for ffn in ki.find_ffns(model)], narrow.count_params())
narrow.save("narrow.keras")

loaded = keras.models.load_model("narrow.keras")
difference = np.abs(loaded.predict(x[:4], verbose=0) - model.predict(x[:4], verbose=0))
print("greatest difference of a logit:", difference.max())

"""
## Good to know

- `begin_step` and `prune_steps` are optimizer steps, counted as `optimizer.iterations`.
  A second `fit` with the same optimizer continues the count. Pruning must end within
  the `fit` in which it begins, unless a callback stops that `fit`.
- The run stops with an error if something else trains the model, or if no gradient
  reaches an FFN.
- `ki.explain(model)` shows every FFN that will be pruned, including `Dense` FFNs. To
  choose some, pass `groups`.
- [Targets, methods and `compact`](../any_keras_model.md#targets-and-methods) are the
  same for every layer. For a second warm-up of the learning rate, use
  `ki.StagedSchedule([(whole, begin), (again, rest)])`.

## Next steps

- [Write your own pruning method](your_own_method.md).
- [Prune in your own training loop](your_own_training_loop.md).
"""
