"""What `test_malformed.py` damages: one small sound thing of each kind."""

import functools
import json
import os

from keras_idea.callbacks import Checkpoint
from keras_idea.callbacks.checkpoint.files import (
    digest_of_file,
    digest_of_manifest,
)
from keras_idea.data import open_text
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.build import decoder_models
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.recorder import LossUnits, Recorder
from keras_idea.models import DecoderConfig, decoder
from tests.support.report_runs import write_run
from tests.support.tiny_run import CONFIG, TEXT
from tests.support.with_tokenizer import with_tokenizer

KERAS = "run/narrow.keras"
WEIGHTS = "preset/model.weights.h5"
NAME = "checkpoint-000001-step-00000004-00000000"
STEP = f"runs/tiny/checkpoints/pruned/{NAME}"


def make_all(folder):
    """`run`, `preset`, `finished` (for reports) and `runs/tiny` (unfinished)."""
    from tests.support.hub_models import tiny_lm

    (folder / "text.txt").write_text(TEXT)
    (folder / "tiny.toml").write_text(CONFIG)
    (folder / "run").mkdir()
    narrow = decoder(
        DecoderConfig(
            vocabulary_size=256,
            model_dim=8,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            sequence_length=32,
        )
    )
    narrow.save(folder / KERAS)
    (folder / "run/config.toml").write_text("[model]\nsequence_length = 32\n")
    lm = tiny_lm("llama3", num_layers=1, vocabulary_size=261)
    with_tokenizer(lm, "llama3").save_to_preset(str(folder / "preset"))
    write_run(folder / "finished")
    make_unfinished(folder)


def make_unfinished(folder):
    """The folder of a run that was stopped, with a checkpoint of step 4."""
    config = load_config(folder / "tiny.toml")
    fraction = config.data.validation_fraction
    text = functools.partial(
        open_text, paths=folder / "text.txt", validation_fraction=fraction
    )
    corpus = text()
    model = decoder_models(config, text).wide()
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(4)
    run = RunFolder(folder / "runs/tiny")
    run.claim(config.to_toml())
    recorder = Recorder(
        "pruned", Sizes(32), learning_rate(config.optimizer, config.budget), LossUnits()
    )
    checkpoint = Checkpoint(
        run.checkpoints("pruned"),
        stateful={"recorder": recorder},
        identity={"text": corpus.fingerprint()},
    )
    checkpoint.set_params({"epochs": 3})
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0)
    (written,) = run.checkpoints("pruned").iterdir()
    written.rename(folder / STEP)


def contents(folder):
    """Every file's bytes by relative path; None of a folder with something in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() and not any(path.iterdir()):
            continue
        name = path.relative_to(folder).as_posix()
        found[name] = path.read_bytes() if path.is_file() else None
    return found


# What damages: each takes the path of a file.
def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def holds(content):
    """Makes a file, or another content for one that is there."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)

    return write


def is_a_link(target):
    def link(path):
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return link


def is_gone(path):
    os.remove(path)


def manifest_with(change):
    """Another manifest with a digest that fits, as no accident makes it."""

    def rewrite(path):
        manifest = json.loads(path.read_text())
        del manifest["digest"]
        manifest = change(manifest) or manifest
        if isinstance(manifest, dict):
            manifest["digest"] = digest_of_manifest(manifest)
        path.write_text(json.dumps(manifest))

    return rewrite


def arrays_with(content):
    """Other bytes in the file of arrays, and the digests that fit."""

    def rewrite(path):
        content(path)
        manifest = path.with_name("manifest.json")

        def change(found):
            found["files"][path.name] = digest_of_file(path)

        manifest_with(change)(manifest)

    return rewrite


def config(text):
    return {"tiny.toml": holds(text)}


def text(content):
    return {"text.txt": holds(content)}
