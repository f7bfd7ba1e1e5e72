"""
Title: Prune neurons and attention heads under one budget
Author: the keras-idea authors
Date created: 2026/11/25
Last modified: 2026/11/26
Description: Prune a checkpoint to a budget of parameters, in `fit` or in one step.
Accelerator: None
"""

"""
## Goal

You prune a trained checkpoint to a budget: a number of parameters, of bytes, or of
FLOPs per token. You do it in two ways, in `fit` and in one step, and compare them.

You need a backend and `pip install "keras-idea[hub,cli]"`. This guide trains its own
small checkpoint, so it needs no network.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import keras_hub
import numpy as np

import keras_idea as ki

keras.utils.set_random_seed(0)
LENGTH, BATCH = 32, 16
# Tokens are bytes: bits per byte are the loss in bits.
corpus = ki.data.load_text("stdlib")
nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


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


backbone = keras_hub.models.MistralBackbone(
    vocabulary_size=256,
    num_layers=2,
    num_query_heads=8,
    num_key_value_heads=4,
    hidden_dim=32,
    intermediate_dim=96,
    sliding_window=LENGTH,
)
lm = keras_hub.models.MistralCausalLM(backbone=backbone, preprocessor=None)
train(lm, 150, 3e-3, start=0)
lm.save_to_preset("checkpoint")


def load():
    return keras_hub.models.CausalLM.from_preset("checkpoint", preprocessor=None)


"""
## Two ways to a budget

- **In `fit`**: `IdeaPruneCallback` prunes neurons and key/value heads while the model
  trains. All kinds keep the same fraction, and the optimizer state is kept.
- **In one step**: `ki.search` judges shapes within the budget without training. It can
  also remove blocks and reduce the hidden size. `ki.shrink` makes the shape that you
  choose, and you train it.

Both ways end with a stock model.

## What can be pruned

The checkpoint made above is a small Mistral. Any preset of a [family](../families.md)
whose config holds `head_dim` supports pruning of heads: Mistral, Qwen3, Gemma.

`ki.find_groups` lists what the callback can prune: the neurons of each FFN, and the
key/value heads of each attention layer. One unit is a key/value head with all query
heads that read it. Here each layer has four units of two query heads each.
"""

for group in ki.find_groups(lm):
    print(group.name, group.hidden_dim, group.kind)

"""
## Prune neurons and heads in `fit`, by one ratio

With `kinds` and a budget, the callback finds the one fraction that all kinds keep.
Pruning starts at once (`begin_step=0`), because the model is already trained. In the
last steps the model recovers. The peak learning rate is a third of that of pretraining.
"""

BUDGET = lm.backbone.count_params() * 2 // 3
x, y = corpus.validation_windows(length=LENGTH, limit=256)


def bits(model):
    logits = model.predict(as_inputs(x), batch_size=BATCH, verbose=0)
    return float(nats(y, logits)) / float(np.log(2.0))


in_fit = load()
pruning = ki.IdeaPruneCallback(
    begin_step=0,
    prune_steps=50,
    target_parameters=BUDGET,
    kinds=["neurons", "kv_groups"],
)
train(in_fit, 150, 1e-3, start=150, callbacks=[pruning])

"""
## Prune in one step: search, then shrink

`ki.search` measures the importance of the parts in `kinds` once. Then it judges the
shapes that fit the budget by their loss on the data. The plot shows each shape. The
order before training only predicts the order after training, so train the best few
shapes and compare.

With `refit=True`, `ki.shrink` also fits the layers that read the remaining units, by
least squares on the data. The model then loses less before it trains.
"""

windows = next(corpus.batches(seed=1, batch_size=256, length=LENGTH))
data = (as_inputs(windows[0]), windows[1])
model = load()
model.compile(loss=nats)
found = ki.search(
    model,
    data,
    target_parameters=BUDGET,
    # No block can be removed: by default, `limits` keeps at least 0.7 of the two.
    kinds=["neurons", "kv_groups"],
    candidates=4,
    plot="search.png",
)
only_cut = bits(ki.shrink(model, found[0].targets, data))
in_one_step = ki.shrink(model, found[0].targets, data, refit=True)
before_training = bits(in_one_step)
train(in_one_step, 150, 1e-3, start=150)

"""
## Compare the two ways

Both models trained for the same number of steps on the same batches. The numbers are
bits per byte; lower is better. For a real decision, use your data and several seeds:
another seed can change the results by as much as these differences.
"""

for name, bits_per_byte, size in (
    ("the checkpoint", bits(load()), lm.backbone.count_params()),
    ("in fit", bits(in_fit), in_fit.backbone.count_params()),
    ("in one step", bits(in_one_step), in_one_step.backbone.count_params()),
):
    print(f"{name}: {bits_per_byte:.3f} bits per byte, {size:,} parameters")
print(f"in one step, before it trained: {before_training:.3f}")
print(f"and without the refit: {only_cut:.3f}")

"""
We measured a small Mistral of six blocks, with three seeds
(`benchmarks/results/recover_shapes.md`, 2026-11-26; code: `git show
a87d398f:benchmarks/recover_shapes.py`):

- The order of the search was nearly the order after recovery.
- Shapes with fewer blocks were the best. Compared with pruning FFNs alone, the best
  shape had a loss lower by 0.03 bits per byte at two thirds of the parameters (five
  blocks). At half of the parameters, it was lower by 0.12 (two blocks, nothing else
  reduced).
- Pruning FFNs alone was better in `fit` than in one step, by 0.02 to 0.05.

## Save the model

The narrow model is a stock model. Its preset loads without this package.
"""

in_fit.save_to_preset("smaller")
loaded = keras_hub.models.CausalLM.from_preset("smaller", preprocessor=None)
print(loaded.backbone.num_key_value_heads, "of 4 key/value heads")

"""
## What is not possible

- Some families compute `head_dim` from `hidden_dim` and the number of heads (GPT-2,
  Llama). A stock class of such a family cannot hold fewer heads. `ki.find_groups`
  leaves these heads out. For a Llama 2 or Llama 3, `ki.models.as_mistral` makes an
  equal Mistral first, whose heads can be pruned.
- Blocks and hidden size are reduced only in one step, never within `fit`. The hidden
  size is reduced only in KerasHub's models.

## Next steps

- [Prune a released checkpoint](released_checkpoint.md), with the original model as
  teacher.
- [Look up the tested families](../families.md) of KerasHub.
"""
