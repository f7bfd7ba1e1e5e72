"""
Title: Prune on many devices
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Data and model parallel on jax; what holds on TensorFlow and PyTorch.
Accelerator: None
"""

"""
## What happens

On jax a model lies on a mesh of devices: the rows of a batch along one axis, and heads,
neurons and the vocabulary cut along the other. Scores and masks are cut as the neurons are.
When the model becomes narrow, each device keeps as many neurons as the others.

This guide makes four devices of one CPU, so that you can run it anywhere. It shows jax;
what the other two do is at its end.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"

import jax
import keras
import numpy as np

import keras_idea as ki
from keras_idea.distribution import distribution_of, kernel_layouts
from keras_idea.models import DecoderConfig, decoder

print(jax.devices())

"""
## The same model twice

Once on one device, once on a mesh of two by two. `kernel_layouts` says which kernels are cut
along which axis, for this package's own decoder and for KerasHub's families;
`distribution_of` makes a `keras.distribution` of it.
"""

config = DecoderConfig(
    vocabulary_size=256,
    model_dim=32,
    num_layers=2,
    num_heads=4,
    hidden_dim=96,
    sequence_length=32,
)
corpus = ki.data.load_text("stdlib")
STEPS = 60


def train():
    keras.utils.set_random_seed(0)
    model = decoder(config)
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
layouts = kernel_layouts(decoder(config), 2)
with distribution_of(data=2, model=2, layouts=layouts).scope():
    spread, found = train()
    kernel = ki.find_ffns(spread)[0].layer.up_kernel
    print(
        "up kernel",
        kernel.shape,
        "a device holds",
        kernel.value.sharding.shard_shape(tuple(kernel.shape)),
    )

print("loss on one device ", np.round(expected["loss"], 4), expected["width"])
print("loss on four       ", np.round(found["loss"], 4), found["width"])

"""
## As one file

    [distribution]
    mesh = { data = 4, model = 2 }

in a run's TOML, and the same `keras-idea train my_run.toml` in every process. On Slurm, GKE
and TPU pods jax finds the others by itself; elsewhere give each process Keras's variables
`KERAS_DISTRIBUTION_JOB_ADDRESSES`, `KERAS_DISTRIBUTION_NUM_PROCESSES` and
`KERAS_DISTRIBUTION_PROCESS_ID`. Checkpoints are one for all processes, and a run goes on from
them with any mesh. What a mesh would take of each device, before there is one:

    keras-idea plan my_run.toml --devices 16x4 --target v5e:8x8

## TensorFlow and PyTorch

- TensorFlow: `MirroredStrategy` prunes as one device does. Other strategies are refused by
  name when `fit` begins.
- PyTorch: `DistributedDataParallel`, as in examples/prune_ddp.py; FSDP is refused by name.
"""
