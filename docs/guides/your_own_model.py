"""
Title: Prune a model of your own while it trains
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/23
Description: An enlarged model becomes narrow in the middle of one `fit`.
Accelerator: None
"""

"""
## What happens

You train a model whose feed-forward networks (FFNs) are wider than you want them in the
end. In the middle of `fit` the least important neurons are masked, a few at a time. When
the last has gone, the kernels and the optimizer's state are sliced where they are, and the
same `fit` goes on with the steps of a small model.

An FFN here is `down(silu(up(x)) * gate(x))`; a neuron is a column of `up` and of `gate` and
a row of `down`. How important it is, the training itself measures: the mean of |w * dL/dw|
over each of its three parts, the greatest of the three, smoothed over steps.

## Setup
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## A model

`PrunableGatedFFN` stands where your FFN stood. Everything else is plain Keras. (Without a
gate it is `PrunableFFN`.) The task: the next byte of a text; to have one at hand, of
Keras's own source.
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
## One `fit`

Half of the steps wide, a quarter to prune, a quarter to recover, all under one cosine.
`ki.CosineDecay` is the paper's; any schedule and any optimizer of Keras will do.
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
The logs tell how many neurons each FFN has, and which share of the weights is masked:
"""

for epoch in range(total_steps // 50):
    print(epoch, {name: history.history[name][epoch] for name in ("width", "loss")})

"""
## What comes out

The model's FFNs are physically narrow already. `compact` turns them into `GatedFFN`, three
kernels and nothing of pruning. `GatedFFN` is a layer of this package, so a process that loads
the file imports `keras_idea` first. To serve the model without this package, use Keras's
`narrow.export(path)`.
"""

narrow = ki.compact(model)
print([ffn.hidden_dim for ffn in ki.find_ffns(model)], narrow.count_params())
narrow.save("narrow.keras")

loaded = keras.models.load_model("narrow.keras")
difference = np.abs(loaded.predict(x[:4], verbose=0) - model.predict(x[:4], verbose=0))
print("greatest difference of a logit:", difference.max())

"""
## What to watch

- `begin_step` and `prune_steps` are optimizer steps, counted as `optimizer.iterations`; an
  epoch has `ceil(len(x) / batch_size)`. In a second `fit` they go on where the first ended, and
  begin at 0 with a new optimizer: add `int(model.optimizer.iterations)`, or compile anew.
  Pruning must end within the `fit` that it begins in, unless a callback stops that.
- The run stops, and says why, when something else trains the model or when no gradient
  reaches an FFN: nothing is pruned by chance.
- `compact="progressive"` makes the model narrower several times on the way down, which
  pays where a step is long beside a compilation.
- A learning rate that warms up again when pruning begins was better in our measurements where
  a long run loses more than half of its neurons, and in short ones:
  `ki.StagedSchedule([(whole, begin), (again, rest)])`, of two schedules and their steps.
- A block of your own that makes its FFN of a number, as `Block(128)`, cannot be loaded from a
  file once it is narrow: its config still says 128. Take the FFN as an argument and serialize
  it in `get_config`, as `keras_idea.models.DecoderBlock` does; a warning says so in time.
- Which part of a model can be pruned: feed-forward blocks written as `PrunableGatedFFN` or
  `PrunableFFN` (input and output as wide as each other, no biases unless you ask for them),
  and those of KerasHub's models. Not `Dense` layers, convolutions or attention.
- `validation_data`, metrics, clipped gradients and other callbacks work as ever; for a
  classifier see examples/prune_in_fit.py. `EarlyStopping` may stop before pruning has begun or
  ended: give it `start_from_epoch`.
- A budget may stand in place of `target_dim`: `target_parameters`, `target_bytes` or
  `target_flops`.
"""
