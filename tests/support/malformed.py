"""What `test_no_code_runs.py` damages: one small sound thing of each kind."""

import json
import shutil

from keras_idea.callbacks import Checkpoint
from keras_idea.callbacks.checkpoint.files import (
    digest_of_file,
    digest_of_manifest,
)
from keras_idea.lm.runs.config import load_config
from keras_idea.lm.runs.fitting import Progress
from keras_idea.lm.runs.folder import RunFolder
from keras_idea.lm.runs.models import run_models
from tests.support.tiny_run import CONFIG, TEXT
from tests.support.with_tokenizer import with_tokenizer

WEIGHTS = "preset/model.weights.h5"
NAME = "checkpoint-000001-step-00000004-00000000"
STEP = f"runs/tiny/checkpoints/pruned/{NAME}"


def make_all(folder):
    """`run`, `preset` and `runs/tiny` (unfinished)."""
    from tests.support.hub_models import tiny_lm

    (folder / "text.txt").write_text(TEXT)
    (folder / "tiny.toml").write_text(CONFIG)
    lm = tiny_lm("llama3", num_layers=1, vocabulary_size=261)
    with_tokenizer(lm, "llama3").save_to_preset(str(folder / "preset"))
    shutil.copytree(folder / "preset", folder / "run/preset")
    (folder / "run/config.toml").write_text("[model]\nsequence_length = 32\n")
    make_unfinished(folder)


def make_unfinished(folder):
    """The folder of a run that was stopped, with a checkpoint of step 4."""
    config = load_config(folder / "tiny.toml")
    models = run_models(config)
    model = models.wide()
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(4)
    run = RunFolder(folder / "runs/tiny")
    run.claim(config, resumes=False)
    checkpoint = Checkpoint(
        run.checkpoints("pruned"),
        stateful={"progress": Progress(None, "pruned")},
        identity={"text": models.text.fingerprint()},
    )
    checkpoint.set_params({"epochs": 3})
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0)
    (written,) = run.checkpoints("pruned").iterdir()
    written.rename(folder / STEP)


def holds(content):
    """Makes a file, or another content for one that is there."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)

    return write


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
