"""
Title: Prune an unmodified KerasHub model
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/23
Description: One line converts a stock model; a stock preset comes back.
Accelerator: None
"""

"""
## What happens

`ki.make_prunable(model)` converts the feed-forward networks (FFNs) of a KerasHub model where
they are: no subclass, no copy, the same weights and outputs. After `fit`, `ki.compact(model)`
gives a stock model of the class it was, with a smaller `intermediate_dim`, that anyone loads
without this package.

Needed beside a backend: `pip install "keras-idea[hub]"`.

## Setup
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import keras_hub
import numpy as np

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## A stock model

A Llama 3, tiny and from nothing, whose tokens are the bytes of a text. A released model has
a tokenizer that must be kept: see the guide on released checkpoints.
"""

backbone = keras_hub.models.Llama3Backbone(
    vocabulary_size=256,
    num_layers=2,
    num_query_heads=4,
    num_key_value_heads=2,
    hidden_dim=32,
    intermediate_dim=128,
)
lm = keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)

"""
## Data

What the model takes, a dict of `token_ids` and `padding_mask`, and the tokens that follow.
`ki.data.load_text` cuts any text into windows; "stdlib" is the source text of Python's own
library, which every machine has.
"""

LENGTH, BATCH, STEPS = 32, 16, 200
corpus = ki.data.load_text("stdlib")


def as_inputs(ids):
    return {"token_ids": ids, "padding_mask": np.ones_like(ids)}


batches = (
    (as_inputs(x), y)
    for x, y in corpus.batches(seed=0, batch_size=BATCH, length=LENGTH)
)

"""
## Convert, compile, fit
"""

before = lm.predict(as_inputs(np.arange(LENGTH)[None]), verbose=0)
ki.make_prunable(lm)
after = lm.predict(as_inputs(np.arange(LENGTH)[None]), verbose=0)
print("conversion changed a logit by at most", np.abs(after - before).max())

schedule = ki.CosineDecay(3e-3, 3e-5, total_steps=STEPS, warmup_steps=20)
lm.compile(
    keras.optimizers.AdamW(schedule),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    weighted_metrics=None,
)
# With arrays or a `tf.data` dataset call `lm.fit` as ever; a generator needs Keras's own.
keras.Model.fit(
    lm,
    batches,
    steps_per_epoch=50,
    epochs=STEPS // 50,
    shuffle=False,
    callbacks=[ki.IdeaPruneCallback(48, begin_step=100, prune_steps=50)],
    verbose=2,
)

"""
## A stock model again

`target_dim` is always the number of neurons. All layers end with the same width, because
that is what `intermediate_dim` can say, and what servers want.
"""

narrow = ki.compact(lm)
print(type(narrow).__name__, narrow.backbone.intermediate_dim)
narrow.backbone.save_to_preset("narrow_preset")

stock = keras_hub.models.Llama3Backbone.from_preset("narrow_preset")
ids = as_inputs(np.arange(LENGTH)[None])
difference = stock.predict(ids, verbose=0) - narrow.backbone.predict(ids, verbose=0)
print("loaded back, off by at most", np.abs(difference).max())

"""
## Strings, and other tasks

Encoders and classifiers are converted the same way, and a task with a preprocessor takes
strings, as ever. Here BERT tells good films from bad ones.
"""

WORDS = ["good", "fine", "nice", "bad", "poor", "dull"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
labels = np.random.default_rng(0).integers(0, 2, 512)
texts = [f"a {WORDS[i % 3 + 3 * (1 - label)]} film" for i, label in enumerate(labels)]

classifier = keras_hub.models.BertTextClassifier(
    keras_hub.models.BertBackbone(
        vocabulary_size=13,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=64,
        max_sequence_length=8,
    ),
    num_classes=2,
    preprocessor=keras_hub.models.BertTextClassifierPreprocessor(
        keras_hub.tokenizers.BertTokenizer([*SPECIAL, *WORDS, "a", "film"]),
        sequence_length=8,
    ),
)
ki.make_prunable(classifier)
schedule = ki.CosineDecay(1e-2, 1e-4, total_steps=64, warmup_steps=8)
classifier.compile(
    keras.optimizers.AdamW(schedule),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
judged = classifier.fit(
    texts,
    labels,
    batch_size=16,
    epochs=2,
    callbacks=[ki.IdeaPruneCallback(24, begin_step=16, prune_steps=16)],
    verbose=2,
)
ki.compact(classifier).save_to_preset("classifier_preset")
loaded = keras_hub.models.TextClassifier.from_preset("classifier_preset")
verdicts = loaded.predict(["a nice film", "a dull film"], verbose=0)
print(loaded.backbone.intermediate_dim, verdicts.argmax(-1))

"""
## What to watch

- Load weights before `make_prunable`.
- Quantized models and LoRA are refused by name; a family that is not known is,
  too, with the file in which it would be one row.
- `ki.strip(lm)` undoes the conversion without narrowing.
- A run that is one file instead of code: `keras-idea train my_run.toml` with
  `[model] hub = "llama3"`, and `keras-idea export` for Hugging Face, GGUF and ONNX.
"""
