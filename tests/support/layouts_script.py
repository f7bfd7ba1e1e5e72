"""What a mesh of 2 x 2 holds and gathers in a train step, as one line of JSON.

    python -m tests.support.layouts_script NAME ...

A name is "decoder" or one of `tests.support.hub_models.MODELS`.
"""

import json
import os
import re
import sys

os.environ["KERAS_BACKEND"] = "jax"
flags = os.environ.get("XLA_FLAGS", "")
os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=4"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402

from keras_idea.lm.distribution import distribution_of, kernel_layouts  # noqa: E402
from keras_idea.models import DecoderConfig, decoder  # noqa: E402
from tests.support.hub_models import VOCABULARY, batch, randomize, tiny_lm  # noqa: E402

SIZE = 2
CONFIG = DecoderConfig(
    vocabulary_size=VOCABULARY,
    model_dim=16,
    num_layers=2,
    num_heads=4,
    num_key_value_heads=2,
    hidden_dim=24,
    sequence_length=8,
)


def make(name):
    return randomize(decoder(CONFIG), 0.2) if name == "decoder" else tiny_lm(name)


def inputs(name, model):
    rng = np.random.default_rng(0)
    if name == "decoder":
        ids = rng.integers(0, VOCABULARY, (4, 8), dtype="int32")
        return ids, np.roll(ids, -1, axis=1)
    return batch(model, rng)


def losses(model, x, y):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adamw", loss, weighted_metrics=None)
    fit = {"batch_size": 4, "shuffle": False, "verbose": 0, "epochs": 3}
    return keras.Model.fit(model, x, y, **fit).history["loss"]


def gathered(model, x, y):
    """The shapes that a train step puts together from all devices."""
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = [[v.value for v in group] for group in groups]
    data = jax.tree.map(jax.device_put, (x, y))
    text = jax.jit(model.train_step).lower(state, data).compile().as_text()
    shapes = re.findall(r"f32\[([\d,]*)\]\S* all-gather", text)
    return sorted({tuple(int(n) for n in shape.split(",") if n) for shape in shapes})


def held(variable):
    """The share of a variable that one device holds."""
    shape = tuple(variable.shape)
    part = variable.value.sharding.shard_shape(shape)
    return float(np.prod(part) / np.prod(shape))


def tell(name):
    alone = make(name)
    x, y = inputs(name, alone)
    expected = losses(alone, x, y)
    with distribution_of(2, SIZE, kernel_layouts(alone, SIZE)).scope():
        model = make(name)
        found = losses(model, x, y)
        return {
            "losses": [expected, found],
            "shapes": {v.path: tuple(v.shape) for v in model.trainable_variables},
            "held": {v.path: held(v) for v in model.trainable_variables},
            "state": sum(map(held, model.optimizer.variables)),
            "gathered": gathered(model, x, y),
        }


if __name__ == "__main__":
    print(json.dumps({name: tell(name) for name in sys.argv[1:]}))
