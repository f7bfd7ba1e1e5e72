"""A tiny run of `keras-idea train`: its file, its text, its folder."""

import contextlib
import csv
import io

import pytest

from keras_idea_cli import main

CONFIG = """
[model]
model_dim = 16
num_layers = 2
num_heads = 2
hidden_dim = 32
target_dim = 8
sequence_length = 16

[data]
paths = ["text.txt"]
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
ALONE = CONFIG.replace("seed = 1", "seed = 1\ncompare_from_scratch = false")
# Nearly all of a tiny run's time is compilation.
ONE_LAYER = ALONE.replace("num_layers = 2", "num_layers = 1")


def with_keys(config, table, *keys):
    """The config with more keys in a table, which may be new."""
    if f"[{table}]\n" not in config:
        config += f"\n[{table}]\n"
    return config.replace(f"[{table}]\n", "\n".join([f"[{table}]", *keys, ""]))


def with_hub(config, *keys):
    return with_keys(config, "model", *keys)


def write_inputs(folder, config=CONFIG):
    (folder / "text.txt").write_text(TEXT)
    (folder / "tiny.toml").write_text(config)


def run_in(folder, config=ALONE, *arguments):
    """Runs a config in a folder; returns the run folder and what was printed."""
    write_inputs(folder, config)
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with contextlib.redirect_stdout(printed):
            assert main(["train", "tiny.toml", *arguments]) == 0
    return folder / "runs" / "tiny", printed.getvalue()


def metrics(run):
    """The lines of metrics.csv without the times, which differ from run to run."""
    with open(run / "metrics.csv", newline="") as file:
        return [{**line, "ms_per_step": ""} for line in csv.DictReader(file)]


def load(run):
    import keras_hub

    return keras_hub.models.CausalLM.from_preset(str(run / "preset"))
