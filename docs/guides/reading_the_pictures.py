"""
Title: Reading the pictures
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/23
Description: What a run draws, and what each curve should look like.
Accelerator: None
"""

"""
## A run, in one line

    keras-idea train my_run.toml

leaves a folder with the metrics, a table, a sample of text, the narrow model and a picture.
`keras-idea train` alone is the demo: five minutes on two cores. Here is a run of seconds.

Needed beside a backend: `pip install "keras-idea[cli]"`.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import pathlib

from keras_idea.cli import main

SMALL_RUN = """[model]
model_dim = 32
num_layers = 2
num_heads = 4
hidden_dim = 128
target_dim = 48
sequence_length = 32

[data]
batch_size = 16

[budget]
enlarge_steps = 100
prune_steps = 50
recover_steps = 50

[optimizer]
peak_learning_rate = 5e-3
warmup_steps = 10

[run]
output = "runs/small" """

pathlib.Path("small_run.toml").write_text(SMALL_RUN)
main(["train", "small_run.toml"])
print(sorted(path.name for path in pathlib.Path("runs/small").iterdir()))

"""
## The picture: runs/small/*.png

From top to bottom, over optimizer steps:

1. **Learning rate.** One cosine over all stages. A jump would mean a restart.
2. **Width.** Flat, then the cubic fall, then flat: fast at first, slow at the end. A width
   that does not fall means that nothing was pruned; the run stops with an error then.
3. **Loss.** A small bump where neurons go is usual; it is gone before the recovery ends. A
   bump that stays means that too much was cut, or that the learning rate was too low by then
   to recover: prune earlier.
4. **Lives of the neurons.** A line a neuron of one layer, dark while it lives. Lines that
   end early were never worth much; a curtain that falls at once is a one-shot method.

## The table: runs/small/*.md

The wide model just before pruning, the pruned one, and the narrow one from scratch on the
same batches, in bits a byte of text that none has seen. Whether pruning paid is the difference
of the last two, and with one seed that is a hint: the map in benchmarks/results/paper has the
errors.

## Two runs side by side

    keras-idea report runs/a runs/b

prints their tables and writes one page that needs nothing else.

## While it runs

`tensorboard = true` under `[run]`, then `tensorboard --logdir runs` and the tab
`#custom_scalars`. *Churn* is how many neurons changed sides of the line since the last look:
it falls as the scores settle. If it is still high when pruning begins, begin later.
"""
