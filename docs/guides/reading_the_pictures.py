"""
Title: Read the plots of a run
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: What a run plots, and what each curve should look like.
Accelerator: None
"""

"""
## Goal

You start a run with one command and read its plot, its table and its logs. You learn
what each curve should look like.

You need a backend and `pip install "keras-idea[cli]"`. The run below takes seconds. The
demo, `keras-idea train` without a file, takes five to ten minutes on two cores.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import pathlib

from keras_idea.lm.cli import main

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
This call of `main` does the same as `keras-idea train small_run.toml` on the command
line. The run folder holds the metrics, a table, a sample of text, the narrow model and
a plot.

## Read the plot: runs/small/run.png

The plot has four or five parts over the optimizer steps, from top to bottom:

1. **Learning rate.** One cosine over all stages, or two with `rewarm`.
2. **Width.** It is flat, then falls by a cubic (fast at first, slow at the end), then
   is flat again. If the width does not fall, nothing was pruned, and the run stops with
   an error. The dashed line marks the step at which the model becomes narrow.
3. **Loss.** Lines show the training loss, and points the loss on held-out text. If the
   run trains the scratch baseline, its curve is in the same plot. A small bump during
   pruning is usual, and it disappears before the recovery stage ends. A bump that stays
   has two possible causes: too many neurons were pruned, or the learning rate was too
   low for the model to recover. Prune earlier, or try `rewarm = 1.0`.
4. **Validation, close up.** The same points, with a scale for the second half of the
   run, in which the models differ little. A run draws it if it has three such points.
5. **Neurons.** A heat map per layer, with one row per neuron, sorted by the step at
   which it was pruned. If heads are pruned, the heat maps of the attention layers
   follow. If there are more than 12 heat maps, the neurons of all FFNs are sorted
   together into one, and the heads of all attention layers into another. The color
   shows the neuron's rank of importance among the active neurons. Gray means pruned. If
   a row is pale long before its neuron is pruned, the neuron was never important and
   the ranking had settled. If colors still change when pruning begins, either pruning
   begins too early or the neurons are alike. On eager PyTorch, scores are kept only
   shortly before pruning begins, so the colors do not change before.

## Read the table: runs/small/table.md

The table compares three models in bits per byte of held-out text, and in perplexity per
token (here a token is a byte); lower is better:

- the wide model just before pruning,
- the pruned model,
- the scratch baseline, trained on the same batches.

The difference between the last two shows whether pruning paid. With one seed it is only
a hint; the results in benchmarks/results/paper have standard errors.

A run with a teacher has other rows. "Pruned 1.774, teacher 1.664: worse by 0.110" is the
price of the smaller model. If it is too high, keep more neurons, train longer or try
other learning rates. "With the teacher 1.774, without it 1.798" shows what the teacher
gained.

## Compare two runs

    keras-idea report runs/a runs/b

This command prints the tables of both runs and writes one self-contained page.

## Watch a run

Set `tensorboard = true` under `[run]`. Then start `tensorboard --logdir runs` and open
the tab `#custom_scalars`.

The neurons with the highest scores are those that pruning would keep now. *Churn*
counts the neurons that joined or left them since the last reading. Churn falls as the
scores settle. If it is still high when pruning begins, begin later.

## Next steps

- [Resume a long run after a kill](a_run_that_lasts.md).
- [All commands and settings](../command_line.md).
"""
