"""
Title: A run that lasts
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/23
Description: Documents on disk, checkpoints, a kill, and what to watch.
Accelerator: None
"""

"""
## What happens

A long run reads more text than fits in memory, is killed now and then, and is watched from
elsewhere. Here are the three parts, in code; a run's TOML has all of them as tables
(`[corpus]`, `[run]`).

Needed beside a backend: `pip install "keras-idea[data,tensorboard]"`.

## Documents

They are tokenized once, in parallel if you like, and packed without padding into a cache on
disk. Each epoch sees every window once, in a new order. A bad record is refused, or counted
and passed over; a truncated file is always an error.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import json
import pathlib

import keras
import numpy as np

import keras_idea as ki
from keras_idea.data import TextSource, TokenBatches, build_cache, load_vocabulary
from keras_idea.models import DecoderConfig, decoder

text = pathlib.Path("documents.jsonl")
library = pathlib.Path(os.__file__).parent
with text.open("w") as file:
    for path in sorted(library.glob("*.py"))[:40]:
        file.write(json.dumps({"text": path.read_text(errors="ignore")}) + "\n")

source = TextSource(text, on_bad="skip")
vocabulary = load_vocabulary("bytes")
cache = build_cache(source, vocabulary, "cache")
batches = TokenBatches(cache, length=32, batch_size=16, seed=0)

"""
## A run with checkpoints

`ki.Checkpoint` keeps everything that the run needs to resume: weights, the optimizer's state,
scores, masks and widths, the seeds. It must be last in `callbacks`, and `restore` comes
before `fit`: a folder with checkpoints that were not restored raises an error. Each is
written under another name and renamed; a damaged one is skipped for the one before.
`Monitor` writes for TensorBoard.
"""

STEPS, EPOCH = 150, 25
config = DecoderConfig(
    vocabulary_size=vocabulary.vocabulary_size,
    model_dim=32,
    num_layers=2,
    num_heads=4,
    hidden_dim=96,
    sequence_length=32,
)


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise Killed


def run(folder, kill_at=None):
    keras.utils.set_random_seed(0)
    model = decoder(config)
    model.compile(
        keras.optimizers.AdamW(ki.CosineDecay(3e-3, 3e-5, STEPS, warmup_steps=10)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    prune = ki.IdeaPruneCallback(
        32,
        begin_step=75,
        prune_steps=25,
        log_dir=ki.Monitor(f"{folder}/logs", tokens_per_batch=16 * 32),
    )
    checkpoint = ki.Checkpoint(f"{folder}/checkpoints")
    epoch = checkpoint.restore(model)  # 0 at first
    print(f"begins at epoch {epoch}, with {ki.find_ffns(model)[0].hidden_dim} neurons")
    model.fit(
        batches.dataset(epoch * EPOCH),
        steps_per_epoch=EPOCH,
        epochs=STEPS // EPOCH,
        initial_epoch=epoch,
        shuffle=False,
        callbacks=[prune, checkpoint, Kill(kill_at)],
        verbose=2,
    )
    return model


"""
## Killed in the middle, after it became narrow
"""

try:
    run("killed", kill_at=5)
except Killed:
    print("killed")

resumed = run("killed")
whole = run("whole")

"""
The resumed run and the one that was never killed end alike: on jax on a CPU, to the last
bit.
"""

for mine, other in zip(resumed.get_weights(), whole.get_weights(), strict=True):
    print(mine.shape, "differ by at most", np.abs(mine - other).max())

"""
## Watch it

    tensorboard --logdir killed/logs

and its tab `#custom_scalars`: loss, learning rate, width, churn, speed and memory in one
dashboard. It needs no TensorFlow. `keras-idea report runs/a runs/b` compares finished runs
of the command line in one page.
"""
