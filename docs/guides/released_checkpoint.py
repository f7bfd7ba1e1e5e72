"""
Title: Prune a released checkpoint, with the original model as teacher
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Prune a trained model in a short run, and recover it by distillation.
Accelerator: None
"""

"""
## Goal

You prune a third of the neurons of a trained checkpoint in a short run. The original
model is the teacher from which the narrow model recovers.

You need a backend and `pip install "keras-idea[hub]"`. This guide trains its own small
checkpoint, so it needs no network.

## Make a checkpoint
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import keras_hub
import numpy as np

import keras_idea as ki
from keras_idea.lm.data.text.make_tokenizer import make_tokenizer

keras.utils.set_random_seed(0)
LENGTH, BATCH = 32, 16
tokenizer = make_tokenizer("llama3", "bytes", text="")
corpus = ki.data.load_text("stdlib").tokenized(
    ki.data.tokenizer_vocabulary(tokenizer), tokenizer.start_token_id
)
nats = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def as_inputs(ids):
    return {"token_ids": ids, "padding_mask": np.ones_like(ids)}


def batches(start):
    stream = corpus.batches(seed=0, batch_size=BATCH, length=LENGTH, start_step=start)
    return ((as_inputs(x), y) for x, y in stream)


backbone = keras_hub.models.Llama3Backbone(
    vocabulary_size=tokenizer.vocabulary_size(),
    num_layers=2,
    num_query_heads=4,
    num_key_value_heads=2,
    hidden_dim=32,
    intermediate_dim=96,
)
lm = keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)
lm.compile(keras.optimizers.AdamW(3e-3), nats, weighted_metrics=None)
# Arrays or a `tf.data` dataset work with `lm.fit`; a generator needs Keras's own `fit`.
keras.Model.fit(lm, batches(0), steps_per_epoch=150, shuffle=False, verbose=2)
lm.preprocessor = keras_hub.models.Llama3CausalLMPreprocessor(tokenizer, LENGTH)
lm.save_to_preset("checkpoint")

"""
You can use any KerasHub preset, by its handle or its folder. For a Hugging Face folder
or a GGUF file, use `ki.hub.load(source)`, which
[compares it](../released_checkpoints.md) with transformers. The checkpoint made above
is a small Llama 3, trained on a little text. The tokens of its tokenizer are bytes.

## Load teacher and student

Teacher and student are two models of one preset. The callback prunes only the student.
The peak learning rate is a third of that of pretraining. `ki.recommended(student,
tokens=N)` recommends this and the other settings, each with its reason.

The run needs no wide stage. `begin_step=0` works because a new optimizer counts its
steps from 0. `ki.distiller` connects the two models: it is Keras's `Distiller`, compiled
as the student is. With `features=False`, the student follows the teacher's logits.

The models train on tokens, so you load them without the preprocessor. (On JAX, an
unused preprocessor makes Keras predict slowly.) Load the preprocessor separately and
keep it: the narrow model needs it to read and write text.
"""

preprocessor = keras_hub.models.CausalLMPreprocessor.from_preset("checkpoint")


def load():
    return keras_hub.models.CausalLM.from_preset("checkpoint", preprocessor=None)


teacher, student = load(), load()
PRUNE_STEPS, RECOVER_STEPS = 50, 100
steps = PRUNE_STEPS + RECOVER_STEPS
student.compile(
    keras.optimizers.AdamW(ki.CosineDecay(1e-3, 1e-5, steps, warmup_steps=10)),
    nats,
    weighted_metrics=None,
)
pair = ki.distiller(teacher, student, features=False)

"""
## Prune and recover

The callback finds the student inside the pair. `target_dim=0.667` is the fraction
of the neurons that stays. `round_to=32` rounds the FFN width to a multiple of 32,
because Q8_0, a type of GGUF files, stores blocks of 32.
"""

x, y = corpus.validation_windows(length=LENGTH, limit=256)


def bits(model):
    logits = model.predict(as_inputs(x), batch_size=BATCH, verbose=0)
    return float(nats(y, logits)) / corpus.bytes_per_token(y) / float(np.log(2.0))


before = bits(student)
pair.fit(
    batches(150),
    steps_per_epoch=50,
    epochs=steps // 50,
    shuffle=False,
    callbacks=[ki.IdeaPruneCallback(0.667, 0, PRUNE_STEPS, round_to=32)],
    verbose=2,
)
after = bits(student)
print(f"{before:.3f} bits per byte with 96 neurons, {after:.3f} with 64")

"""
In our measurements, the teacher lowered the loss by 0.009 bits per byte at FFN width
352 of 512, and by 0.013 at 192. The model was a Llama 3 of 1.6 million parameters, with
three seeds (benchmarks/results/recover_checkpoint.md, 2026-11-23; code: `git show
a87d398f:benchmarks/recover_checkpoint.py`).

## Save the model with its tokenizer

After `fit`, the student is a narrow stock model. Set its preprocessor before you save
it. A preset without a preprocessor cannot generate text after it is loaded. For such
a preset, `keras-idea export` warns that the file has no tokenizer, and
`keras-idea evaluate` raises an error.
"""

student.preprocessor = preprocessor
student.save_to_preset("narrow_checkpoint")

loaded = keras_hub.models.CausalLM.from_preset("narrow_checkpoint")
text = loaded.generate("def ", max_length=LENGTH)
print(text)

"""
## Next steps

- [Choose the settings](../recommended_settings.md) for your model and tokens.
- Do the same without code: `keras-idea new small.toml --preset checkpoint --tokens N`
  writes a run file, and `keras-idea train small.toml` runs it. With
  `compare_without = true` under `[distillation]`, the run also recovers the model
  without a teacher, so you see how much the teacher helps.
- [Recover an instruct model](../command_line.md#an-instruct-model) on conversations.
- [Prune neurons and heads under one budget](several_axes.md).
"""
