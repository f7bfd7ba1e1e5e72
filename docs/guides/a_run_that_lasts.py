"""
Title: Resume a long run after a kill
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Train on documents from disk, save checkpoints, resume, and watch the run.
Accelerator: None
"""

"""
## Goal

You train on documents from disk, kill the run in the middle, and resume it from its
last checkpoint. You also log the run for TensorBoard.

You need a backend and `pip install "keras-idea[data,tensorboard]"`. In a run's TOML
file, the same settings are in the tables `[corpus]` and `[run]`.
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
## Tokenize documents

Above, `build_cache` tokenizes the documents once and packs the tokens, without padding,
into a cache on disk. Each epoch reads every window once, in a new order. A bad record
raises an error; with `on_bad="skip"`, it is counted and skipped. A truncated file
always raises an error.

## Train with checkpoints

`ki.Checkpoint` saves everything that the run needs to resume: weights, optimizer
state, scores, masks, widths and seeds. Follow two rules:

- Put it last in `callbacks`.
- Call `restore` before `fit`. If the folder holds checkpoints that were not restored,
  `fit` raises an error.

Each checkpoint is written under a temporary name and then renamed. If a checkpoint is
damaged, `restore` uses the one before it. `Monitor` writes the logs for TensorBoard.
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
## Kill the run, then resume it

The first run is killed after the model becomes narrow. For comparison, a second run is
never killed.
"""

try:
    run("killed", kill_at=5)
except Killed:
    print("killed")

resumed = run("killed")
whole = run("whole")

"""
This cell compares the weights of the two runs. On JAX on a CPU, they are equal, bit for
bit.
"""

for mine, other in zip(resumed.get_weights(), whole.get_weights(), strict=True):
    print(mine.shape, "differ by at most", np.abs(mine - other).max())

"""
## Watch the run

Start TensorBoard and open its tab `#custom_scalars`:

    tensorboard --logdir killed/logs

One dashboard shows loss, learning rate, width, churn, speed and memory. You do not need
TensorFlow.

## Next steps

- Compare finished runs of the command line on one page:
  `keras-idea report runs/a runs/b`.
- [Read the plots of a run](reading_the_pictures.md).
- [Prune on many devices](many_devices.md).
"""
