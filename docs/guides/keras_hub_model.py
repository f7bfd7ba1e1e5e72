"""
Title: Prune an unmodified KerasHub model
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Prune a stock KerasHub model with one callback; it stays a stock model.
Accelerator: None
"""

"""
## Goal

You prune a stock KerasHub model with one callback and convert nothing. At the end, you
have a narrow stock model with a smaller `intermediate_dim`, saved by KerasHub's own
`save_to_preset`.

You need a backend and `pip install "keras-idea[hub]"`.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import keras_hub
import numpy as np

import keras_idea as ki

keras.utils.set_random_seed(0)

"""
## Make a stock model

This is a tiny Llama 3 with random weights. Its tokens are the bytes of a text. A
released model has a tokenizer that you must keep; see [the guide on
checkpoints](released_checkpoint.md).
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
## See what will be pruned

The callback follows the data through the model to find its feed-forward networks
(FFNs). `ki.find_ffns` lists them. `ki.explain(lm)` also gives the reason why the other
layers are not pruned.
"""

for ffn in ki.find_ffns(lm):
    print(ffn.name, ffn.hidden_dim)

"""
## Prepare the data

The model takes a dict of `token_ids` and `padding_mask`. The targets are the next
tokens. `ki.data.load_text` cuts any text into windows. "stdlib" is the source text of
Python's own library, which every machine has.
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
## Train and prune in one `fit`

An integer `target_dim` is the FFN width that you want. All layers get the same width,
because `intermediate_dim` is one number.
"""

schedule = ki.CosineDecay(3e-3, 3e-5, total_steps=STEPS, warmup_steps=20)
lm.compile(
    keras.optimizers.AdamW(schedule),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    weighted_metrics=None,
)
# Arrays or a `tf.data` dataset work with `lm.fit`; a generator needs Keras's own `fit`.
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
## Save the model with KerasHub
"""

print(type(lm).__name__, lm.backbone.intermediate_dim, lm.count_params())
lm.backbone.save_to_preset("narrow_preset")

stock = keras_hub.models.Llama3Backbone.from_preset("narrow_preset")
ids = as_inputs(np.arange(LENGTH)[None])
difference = stock.predict(ids, verbose=0) - lm.backbone.predict(ids, verbose=0)
print("loaded back, off by at most", np.abs(difference).max())

"""
## Train on strings, for other tasks

You prune encoders and classifiers in the same way. A task with a preprocessor takes
strings. Here, BERT classifies films as good or bad.

`groups` chooses the FFNs by name; here it chooses those of the backbone. The head of
this classifier also has a `Dense` layer, but its width is not in the classifier's
config.
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
    callbacks=[
        ki.IdeaPruneCallback(
            24,
            begin_step=16,
            prune_steps=16,
            groups=lambda ffn: ffn.name.startswith("transformer_layer"),
        )
    ],
    verbose=2,
)
classifier.save_to_preset("classifier_preset")
loaded = keras_hub.models.TextClassifier.from_preset("classifier_preset")
verdicts = loaded.predict(["a nice film", "a dull film"], verbose=0)
print(loaded.backbone.intermediate_dim, verdicts.argmax(-1))

"""
## Good to know

- With `compact="off"` the model stays wide, and all weights of the pruned neurons are
  exactly zero. A checkpoint of it loads into the stock class. Then call
  `ki.compact(lm)`, which returns a narrow model of the same class. If you train the
  wide model further without the callback, the optimizer's moments may make pruned
  neurons active again.
- Quantized layers and LoRA raise `ValueError` when `fit` begins. Prune first, then use
  Keras's own `quantize` and `enable_lora`.

## Next steps

- [Prune a released checkpoint](released_checkpoint.md), with the original model as
  teacher.
- Describe a run in one file instead of code: set `[model] hub = "llama3"` and call
  `keras-idea train my_run.toml`. `keras-idea export` writes Hugging Face, GGUF and ONNX
  files.
"""
