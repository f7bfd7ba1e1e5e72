"""The smallest scale at which the paper's tables can be carried out."""

import dataclasses

import numpy as np

from benchmarks.paper.carry_out import Laboratory
from benchmarks.paper.scale import Scale
from benchmarks.paper.store import Store
from keras_idea.data import Corpus

MICRO = Scale(
    name="micro",
    model_dim=16,
    num_layers=1,
    num_heads=2,
    target_dim=12,
    sequence_length=8,
    batch_size=2,
    total_steps=12,
    warmup_steps=2,
    calibration_samples=4,
    validation_windows=2,
    curve_points=6,
)


def corpus():
    text = np.random.default_rng(0).integers(97, 105, 1200).astype("uint8")
    return Corpus(text[:1000], text[1000:], "random letters")


def laboratory(folder, **changes):
    scale, text = dataclasses.replace(MICRO, **changes), corpus()
    return Laboratory(scale, text, Store(folder, scale, text))


KEYS = {
    *("cell", "scale", "seed", "bits_per_byte", "width", "steps", "tokens", "flops"),
    *("flops_predicted", "flops_masked", "flops_cubic", "seconds", "cpu_seconds"),
    *("curve", "stages", "data", "backend", "versions"),
}
