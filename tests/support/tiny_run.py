"""A tiny run of `keras-idea train`: its config, its text."""

import contextlib
import csv
import io

import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.runs.train import time_limit

CONFIG = """
[model]
model_dim = 16
num_layers = 2
num_heads = 2
hidden_dim = 32
target_dim = 8
sequence_length = 16

[data]
text = "text.txt"
batch_size = 4
validation_fraction = 0.2
validation_batches = 2

[budget]
enlarge_steps = 4
prune_steps = 3
recover_steps = 5

[optimizer]
warmup_steps = 2

[sample]
prompt = "the "
tokens = 20

[run]
seed = 1
validate_every = 4
"""


TEXT = "the quick brown fox jumps over the lazy dog, and again: " * 40


def write_inputs(folder, config=CONFIG):
    (folder / "text.txt").write_text(TEXT)
    (folder / "tiny.toml").write_text(config)


# Nearly all of a tiny run's time goes into compiling.
ONE_LAYER = CONFIG.replace("num_layers = 2", "num_layers = 1")


def run_in(folder, config, name="tiny"):
    """Runs a config in a folder; returns the run folder and what was printed."""
    write_inputs(folder, config)
    (folder / "tiny.toml").rename(folder / f"{name}.toml")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # Thirty seconds are not enough on a machine that does other things too.
        patch.setattr(time_limit, "LEAST", 600.0)
        with contextlib.redirect_stdout(printed):
            assert main(["train", f"{name}.toml"]) == 0
    return folder / "runs" / name, printed.getvalue()


def with_hub(config, *keys):
    return config.replace("[model]\n", "\n".join(["[model]", *keys, ""]))


def load(run):
    import keras_hub

    return keras_hub.models.CausalLM.from_preset(str(run / "preset"))


def curve(folder):
    """Columns of a run's metrics, as float arrays."""
    with open(folder / "metrics.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    names = ("learning_rate", "width", "bits_per_byte")
    columns = {name: np.array([float(line[name]) for line in lines]) for name in names}
    columns["validation"] = np.array([float(line["validation"] or 0) for line in lines])
    return columns


ALONE = CONFIG.replace("seed = 1", "seed = 1\ncompare_from_scratch = false")
