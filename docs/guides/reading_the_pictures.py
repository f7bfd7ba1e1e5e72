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
## The picture: runs/small/run.png

From top to bottom, over optimizer steps:

1. **Learning rate.** One cosine over all stages, or two with `rewarm`.
2. **Width.** Flat, then the cubic fall, then flat: fast at first, slow at the end. A width
   that does not fall means that nothing was pruned; the run stops with an error then. The
   dashed line is where the arrays became smaller.
3. **Loss**, of training (lines) and of held-out text (points), with the narrow model from
   scratch beside it if the run trains one. A small bump where neurons go is usual; it is gone
   before the recovery ends. A bump that stays means that too much was cut, or that the
   learning rate was too low by then to repair it: prune earlier, or try `rewarm = 1.0`.
4. **Lives of the neurons.** A row a neuron of one layer, in the order in which they went.
   The color is its rank in importance among the living; grey: pruned. Rows that were pale
   long before they went were never worth much, and the ranking had settled. Colors that
   still change when pruning begins say that it begins early, or that the neurons are alike.

## The table: runs/small/table.md

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
