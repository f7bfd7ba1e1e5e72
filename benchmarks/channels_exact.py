"""How exactly a convolutional network without half of its channels is the masked one.

    KERAS_BACKEND=torch python benchmarks/channels_exact.py

Each model of `keras.applications`, with random weights and 10 classes: every other
channel of each group is masked, by zeros where it is read, and cut out by `compact`.
Errors are the largest difference of a logit, relative to the largest logit. In training
mode BatchNormalization divides by what it has just measured, so rounding grows: beside
the error is that of the masked model itself when its inputs change by one unit
in the last place. Writes results/channels_exact-BACKEND.json and .md, after each
model.
"""

import argparse
import gc
import time

import keras
import numpy as np
import record
from keras import applications

import keras_idea as ki
from keras_idea.finding.work_count import uses_of_matrices

#: Pixels: as few as the model takes in training mode with two samples.
MODELS = {
    "VGG16": 32,
    "ResNet50": 64,
    "ResNet50V2": 64,
    "MobileNet": 64,
    "MobileNetV2": 64,
    "MobileNetV3Small": 64,
    "EfficientNetV2B0": 64,
    "DenseNet121": 64,
    "Xception": 80,
    "InceptionV3": 96,
    "NASNetMobile": 64,
    "ConvNeXtTiny": 64,
}
#: Models that take pixels from 0 to 255.
OF_PIXELS = ("MobileNetV3Small", "EfficientNetV2B0", "ConvNeXtTiny")
SAMPLES = 4


def to_numpy(value):
    """A float64 array."""
    return np.asarray(keras.ops.convert_to_numpy(value), "float64")


def made(name, size):
    """A model without dropout, whose statistics and factors are not those at first."""
    keras.utils.set_random_seed(0)
    make = getattr(applications, name)
    how = {"weights": None, "classes": 10, "classifier_activation": None}
    model = make(input_shape=(size, size, 3), **how)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
        if isinstance(layer, keras.layers.BatchNormalization):
            for variable in layer.variables:
                factor = rng.uniform(-0.1, 0.1, variable.shape)
                variable.assign(to_numpy(variable) + factor)
    return model


def mask(groups):
    """Zeroes every other unit where it is read."""
    for group in groups:
        for cut in group.weights.own_cuts():
            places = to_numpy(cut.spread(np.arange(group.hidden_dim) % 2 == 1))
            cut.variable.assign(np.where(places, 0, to_numpy(cut.variable)))


def work(model):
    """Multiply-adds of one sample."""
    uses, _ = uses_of_matrices(model)
    return sum(
        uses.get(id(variable), 0) * np.prod(variable.shape)
        for variable in model.variables
    )


def answers(model, x):
    """The outputs in inference mode, then in training mode, with the same weights."""
    before = [(v, keras.ops.copy(v.value)) for v in model.non_trainable_variables]
    found = [to_numpy(model(x, training=mode)) for mode in (False, True)]
    for variable, value in before:
        variable.assign(value)
    return found


def halved(name, size):
    """A masked model, the narrow copy, and what they were given and measured by."""
    model = made(name, size)
    began = time.perf_counter()
    groups = ki.find_groups(model)
    seconds = time.perf_counter() - began
    mask(groups)
    x = np.random.default_rng(1).normal(size=(SAMPLES, size, size, 3))
    x = (64 * x + 128 if name in OF_PIXELS else x).astype("float32")
    kinds = [group.kind for group in groups]
    counted = {
        "pixels": size,
        "channel groups": kinds.count("channels"),
        "FFNs": kinds.count("neurons"),
        "find seconds": seconds,
    }
    return model, ki.compact(model), x, counted


def errors(some, others):
    """The largest difference in each mode, relative."""
    pairs = zip(some, others, strict=True)
    return [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs]


def measured(name, size):
    """dict: what a row of the table says."""
    model, narrow, x, found = halved(name, size)
    found["parameters left"] = narrow.count_params() / model.count_params()
    found["multiply-adds left"] = float(work(narrow) / work(model))
    masked = answers(model, x)
    modes = ("inference", "training")
    cut = errors(masked, answers(narrow, x))
    noise = errors(masked, answers(model, np.nextafter(x, np.float32(np.inf))))
    for mode, error, own in zip(modes, cut, noise, strict=True):
        found |= {f"{mode} error": error, f"{mode} noise": own}
    return found


def row(name, found):
    """One line of the table."""
    if "raised" in found:
        return [name, found["raised"], *[""] * 6]
    return [
        f"{name}, {found['pixels']} pixels",
        f"{found['channel groups']} + {found['FFNs']}",
        f"{found['find seconds']:.1f}",
        f"{found['parameters left']:.2f}",
        f"{found['multiply-adds left']:.2f}",
        f"{found['inference error']:.0e}",
        f"{found['training error']:.0e}",
        f"{found['training noise']:.0e}",
    ]


def report(output, facts, found):
    """Writes the table of the models so far."""
    table = {
        "title": "Half of the channels, masked against cut, float32",
        "columns": [
            "model",
            "groups of channels + FFNs",
            "find, s",
            "parameters left",
            "multiply-adds left",
            "error in inference",
            "error in training mode",
            "noise in training mode",
        ],
        "rows": [row(name, each) for name, each in found.items()],
        "notes": f"{SAMPLES} samples, random weights, one run each. Noise: the masked "
        "model on inputs one unit in the last place larger.",
    }
    stem = f"channels_exact-{keras.backend.backend()}"
    record.write(output, stem, facts, {"models": found}, [table])


def main():
    """Measures the models, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--output", default=record.REPOSITORY / "benchmarks/results")
    given = parser.parse_args()
    facts, found = record.environment(), {}
    for name in given.models:
        try:
            found[name] = measured(name, MODELS[name])
        except ValueError as error:  # a backend may not build one
            found[name] = {"raised": f"not built: {str(error)[:60]}"}
        keras.backend.clear_session()
        gc.collect()
        print(name, found[name], flush=True)
        report(given.output, facts, found)


if __name__ == "__main__":
    main()
