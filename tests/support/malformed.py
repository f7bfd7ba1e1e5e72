"""What `test_no_code_runs.py` damages: one small sound thing of each kind."""

import shutil

from keras_idea._callbacks import Checkpoint
from keras_idea._lm.runs.config import load_config
from keras_idea._lm.runs.fitting import Progress
from keras_idea._lm.runs.folder import RunFolder
from keras_idea._lm.runs.models import run_models
from tests.support.tiny_run import CONFIG, TEXT
from tests.support.with_tokenizer import with_tokenizer

WEIGHTS = "preset/model.weights.h5"
NAME = "checkpoint-000001-step-00000004.safetensors"
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
    assert (folder / STEP).exists()


def holds(content):
    """Makes a file, or another content for one that is there."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)

    return write
