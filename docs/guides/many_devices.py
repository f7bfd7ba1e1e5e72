"""
Title: Prune on many devices
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/29
Description: Data and model parallelism on JAX; what works on TensorFlow and PyTorch.
Accelerator: None
"""

"""
## Goal

You prune the same model on one device and on four, and compare the losses.

You need the JAX backend. This guide makes four devices of one CPU, so it runs anywhere.
For TensorFlow and PyTorch, see [the end of the guide](#tensorflow-and-pytorch).
"""

import os

os.environ["KERAS_BACKEND"] = "jax"
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"

import jax
import keras
import numpy as np

import keras_idea as ki

print(jax.devices())

"""
## How devices share the work

On JAX, `keras.distribution` splits the work, and pruning follows it:

- `DataParallel` splits the rows of a batch. Each device holds the whole model.
- `ModelParallel` also splits kernels, as a layout map says. KerasHub has one for Llama,
  Llama 3, Gemma and Qwen: `keras_hub.models.Llama3Backbone.get_layout_map(mesh)`. Scores
  and masks are split like the neurons. When the model becomes narrow, all devices keep
  the same number of neurons.

## Train the same model twice

Here four devices share the rows of each batch.
"""

corpus = ki.data.open_text(paths="stdlib")
STEPS = 60


def train():
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(256, 32)(ids)
    for _ in range(2):
        h = keras.layers.RMSNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(4, 8)(h, h, use_causal_mask=True)
        h = keras.layers.RMSNormalization()(x)
        x = x + ki.PrunableGatedFFN(96)(h)
    logits = keras.layers.Dense(256)(keras.layers.RMSNormalization()(x))
    model = keras.Model(ids, logits)
    model.compile(
        keras.optimizers.AdamW(ki.CosineDecay(3e-3, 3e-5, STEPS, warmup_steps=5)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(
        corpus.batches(seed=0, batch_size=8, length=32),
        steps_per_epoch=20,
        epochs=STEPS // 20,
        shuffle=False,
        callbacks=[ki.IdeaPruneCallback(32, begin_step=20, prune_steps=20)],
        verbose=0,
    )
    return model, history.history


alone, expected = train()
with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
    spread, found = train()
    kernel = ki.find_ffns(spread)[0].layer.up_kernel
    print("up kernel", kernel.shape, "on", len(kernel.value.sharding.device_set))

print("loss on one device ", np.round(expected["loss"], 4), expected["width"])
print("loss on four       ", np.round(found["loss"], 4), found["width"])

"""
## Describe the mesh in a file

Add this table to a run's TOML file:

    [distribution]
    data = 4     # devices that share the sequences of a step
    model = 2    # devices that share the kernels, by KerasHub's layout map

Then start the same `keras-idea train my_run.toml` in every process. On Slurm, GKE and
TPU pods, JAX finds the other processes. Elsewhere, set three of Keras's variables in
each process: `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `KERAS_DISTRIBUTION_NUM_PROCESSES` and
`KERAS_DISTRIBUTION_PROCESS_ID`.

In several processes, only `data` is supported, not `model`. Each process reads its own
rows, and the first one writes the checkpoints. A run resumes from them on other
devices, too. The others wait at most 30 minutes for the first process to tokenize the
text.

## TensorFlow and PyTorch

- TensorFlow: `MirroredStrategy` prunes as one device does. Other strategies raise
  `ValueError` when `fit` begins.
- PyTorch: `DistributedDataParallel` works, as in examples/prune_ddp.py. FSDP raises
  `ValueError`.

## Next steps

- [Resume a run after a kill](../runs.md#resume).
- [Prune in your own training loop](your_own_training_loop.md).
"""
