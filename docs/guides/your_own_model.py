"""
Title: Prune a model of your own while it trains
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/24
Description: `PrunableGatedFFN`, a layer that shows its mask and its scores.
Accelerator: None
"""

"""
## What happens

You train a model whose feed-forward networks (FFNs) are wider than you want them in the end. In
the middle of `fit` the least important neurons are masked, a few at a time. Then the kernels
and the optimizer's state are sliced, and the same `fit` continues with a narrow model.

`Dense` layers are pruned in the same way (guide "Prune any Keras model"). This guide uses
`ki.PrunableGatedFFN`, a gated FFN that shows its pruning state: its `mask`, its `scores` and
its `width`. The mask is saved with the model and holds whoever trains it.

The FFN is `down(silu(up(x)) * gate(x))`; a neuron is a column of `up` and of `gate` and a row
of `down`. Training measures each neuron's importance: the mean of |w * dL/dw| over each of its
three parts, the greatest of the three, smoothed over steps.

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

`PrunableGatedFFN` takes the place of your FFN. Everything else is plain Keras. (Without a gate
it is `PrunableFFN`.) The task is to predict the next byte of a text, here of Keras's own source.
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

Half of the steps are wide, a quarter prunes, and a quarter recovers, all under one cosine.
`ki.CosineDecay` is the paper's; any schedule and any optimizer of Keras works.
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
The logs hold the mean FFN width and the share of neurons that are pruned:
"""

for epoch in range(total_steps // 50):
    print(epoch, {name: history.history[name][epoch] for name in ("width", "loss")})

"""
## What comes out

The model's FFNs are narrow already. `compact` replaces them by `GatedFFN` layers, which have
three kernels and no pruning state. `GatedFFN` is a layer of this package, so a process that
loads the file imports `keras_idea` first. To serve the model without this package, use Keras's
`narrow.export(path)`, or write your FFNs of `Dense` layers.
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
  epoch has `ceil(len(x) / batch_size)`. A second `fit` with the same optimizer continues the
  count: add `int(model.optimizer.iterations)`, or compile again. Pruning must end within the
  `fit` that it begins in, unless a callback stops that.
- The run stops, and says why, if something else trains the model or if no gradient reaches an
  FFN.
- `ki.explain(model)` shows every FFN that will be pruned. All are pruned, the `Dense` ones too;
  `groups=` of the callback chooses some.
- `compact="progressive"` narrows the model several times on the way down, which pays if steps
  take long compared with a compilation.
- A learning rate that warms up again when pruning begins was better in our measurements for
  short runs, and for long ones that lose more than half of their neurons:
  `ki.StagedSchedule([(whole, begin), (again, rest)])`, of two schedules and their steps.
- `method=ki.methods.Sensitivity(ema_decay=..., row_reduce=..., matrix_reduce=...)` sets how
  importance is measured.
- `validation_data`, metrics, clipped gradients and other callbacks work as usual; for a
  classifier see examples/prune_in_fit.py. `EarlyStopping` may stop before pruning begins or
  ends: give it `start_from_epoch`.
- A budget may replace `target_dim`: `target_parameters`, `target_bytes` or `target_flops`.
"""
