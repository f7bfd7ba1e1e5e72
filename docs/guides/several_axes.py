"""
Title: A smaller checkpoint, over several axes under one budget
Author: the keras-idea authors
Date created: 2026/11/25
Last modified: 2026/11/25
Description: Pruning neurons and attention heads to a budget, in fit or in one step.
Accelerator: None
"""

"""
## Two ways

You have a trained checkpoint and a budget: a number of parameters, of bytes, or of FLOPs a
token. Two ways lead to it:

- **In `fit`**: `IdeaPruneCallback` prunes neurons and key/value heads while the model trains.
  All kinds keep the same fraction, and the optimizer's state is carried over.
- **In one step**: `ki.search` judges shapes within the budget without training, blocks and
  hidden size included. `ki.shrink` makes the shape that you choose, and you train it.

Both end with a stock model. This guide goes both ways from one checkpoint.

## A checkpoint

Any preset of a [family](../families.md) whose config holds `head_dim` can lose heads: Mistral,
Qwen3, Gemma. This guide needs no network, because it trains a small Mistral itself.
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
    # Arrays or a `tf.data` dataset work with `model.fit`; a generator needs Keras's own.
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
## What can be cut

`ki.find_groups` lists what the callback prunes: the neurons of each FFN, and the key/value
heads of each attention layer. The unit is a key/value head with all query heads that read it:
here four units of two query heads each in a layer.
"""

for group in ki.find_groups(lm):
    print(group.name, group.hidden_dim, group.kind)

"""
## In fit, two kinds by one ratio

With `kinds` and a budget the callback finds the one fraction that all kinds keep. It starts at
once (`begin_step=0`), because the model is trained already, and the last steps recover. The
learning rate is that of fine-tuning, far below that of pretraining.
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
## In one step: search, then shrink

`ki.search` measures the importance of the parts that `kinds` names once, and
judges the shapes that fit the budget by the loss on the data. The picture shows each shape. The
order before training is a guess about the order after it: train the best few and compare.
"""

windows = next(corpus.batches(seed=1, batch_size=256, length=LENGTH))
data = (as_inputs(windows[0]), windows[1])
model = load()
model.compile(loss=nats)
found = ki.search(
    model,
    data,
    target_parameters=BUDGET,
    # Of two blocks none can go: `limits` keeps 0.7 of them unless you say less.
    kinds=["neurons", "kv_groups"],
    candidates=4,
    plot="search.png",
)
in_one_step = ki.shrink(model, found[0].targets, data)
before_training = bits(in_one_step)
train(in_one_step, 150, 1e-3, start=150)

"""
## Which one?

Both trained for equally many steps on the same batches. Bits per byte, less is better. For a
real decision use your data and several seeds: differences of this size are within what another
seed changes.
"""

for name, bits_per_byte, size in (
    ("the checkpoint", bits(load()), lm.backbone.count_params()),
    ("in fit", bits(in_fit), in_fit.backbone.count_params()),
    ("in one step", bits(in_one_step), in_one_step.backbone.count_params()),
):
    print(f"{name}: {bits_per_byte:.3f} bits per byte, {size:,} parameters")
print(f"in one step, before it trained: {before_training:.3f}")

"""
On a small Mistral of six blocks (`benchmarks/results/recover_shapes.md`) the order of the search
was nearly that after recovery, and shapes with a block less were the best ones: 0.03 bits per byte
below FFNs alone at two thirds of the parameters, 0.10 at half. FFNs alone were better in `fit` than
in one step, by 0.02 to 0.05.

## Save it

The narrow model is stock: its preset loads in a process that knows nothing of keras-idea.
"""

in_fit.save_to_preset("smaller")
loaded = keras_hub.models.CausalLM.from_preset("smaller", preprocessor=None)
print(loaded.backbone.num_key_value_heads, "of 4 key/value heads")

"""
## What is not possible

- Heads: where a family computes `head_dim` from `hidden_dim` and the number of heads (GPT-2,
  Llama), its stock class cannot hold fewer of them. `ki.find_groups` leaves them out.
- Blocks and hidden size are cut in one step, never within `fit`; hidden size of KerasHub's models
  alone.
"""
