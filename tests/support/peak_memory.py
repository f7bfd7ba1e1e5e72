"""A process that trains a student and a teacher; prints what it held and its plan's."""

import json
import resource

import keras
import keras_hub
import numpy as np

from keras_idea.distillation import distiller
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.models.compiling import compiled
from keras_idea.lm.runs.models.footprint import footprint, teacher_footprint
from keras_idea.lm.runs.models.outlines import outlines

VOCABULARY, LENGTH, BATCH = 8192, 256, 4
CONFIG = f"""
[model]
hub = "llama3"
model_dim = 192
num_layers = 4
num_heads = 4
num_key_value_heads = 4
hidden_dim = 512
target_dim = 256
sequence_length = {LENGTH}
[data]
batch_size = {BATCH}
"""


def made():
    backbone = keras_hub.models.Llama3Backbone(VOCABULARY, 4, 4, 192, 512, 4)
    return keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)


def resident(field):
    with open("/proc/self/status") as lines:
        return next(1024 * int(w.split()[1]) for w in lines if w.startswith(field))


if __name__ == "__main__":
    config = parse_config(CONFIG)
    # What the libraries and a first program take is not the model's.
    small = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    small.compile("sgd", "mse")
    small.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)
    before = resident("VmRSS")
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH))
    x = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    teacher = made()
    taught = distiller(teacher, compiled(config, made()), weight=0.5)
    keras.Model.fit(taught, x, ids, batch_size=BATCH, epochs=3, verbose=0)
    held = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    outline = outlines(config, VOCABULARY)
    planned = footprint(config, outline, outline.at_start).total
    planned += teacher_footprint(config, teacher.backbone).total
    print(json.dumps({"held": held, "planned": planned}))
