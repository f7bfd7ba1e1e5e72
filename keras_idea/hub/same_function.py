"""A KerasHub model and its narrow copy, compared by what they compute."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.inputs import text_inputs
from keras_idea.keras_private.float32_products import float32_products
from keras_idea.keras_private.layers import walk

# Largest relative difference between the outputs of the masked and the narrow
# model, by the dtype they compute in. Measured: 4.5e-7 to 4.4e-6, and 4e-3 / 0.6.
_TOLERANCES = {"float32": 5e-5, "float64": 1e-6}
_HALF_TOLERANCE = 0.05
_PROBE_LENGTH = 8


def check_same_function(model: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Compares a KerasHub model with its narrow copy on a probe batch.

    Of a model around backbones these are compared. Those that need more than sequences
    of tokens (images, audio) are not run. Refuses outputs that differ by more than the
    dtype explains.
    """
    for old, new in zip(_runnable(model), _runnable(copy), strict=True):
        probe = probe_of(old)
        if probe is None:
            continue
        check_same_outputs(old, new, functools.partial(outputs_of, inputs=probe))


def check_same_outputs(
    model: keras.layers.Layer,
    copy: keras.layers.Layer,
    outputs: Callable[[keras.layers.Layer], np.ndarray],
) -> None:
    """Refuses a copy whose outputs differ by more than the dtype explains.

    They are computed twice where a GPU's coarser products may be the reason.
    """
    limit = _TOLERANCES.get(model.compute_dtype, _HALF_TOLERANCE)
    error = _difference(outputs(model), outputs(copy))
    if not error <= limit:
        with float32_products():
            error = _difference(outputs(model), outputs(copy))
    if not error <= limit:
        raise ArgumentError(
            f"The narrow copy of {type(model).__name__} '{model.name}' computes "
            f"something else: its outputs differ by {error:.2g} (relative, limit "
            f"{limit} in {model.compute_dtype}). Its config does not describe it "
            "fully, its weights are not finite, or its code uses layers that it does "
            "not hold."
        )


def _difference(expected: np.ndarray, received: np.ndarray) -> float:
    error = np.linalg.norm(expected - received)
    return float(error / max(np.linalg.norm(expected), np.finfo("float32").tiny))


def outputs_of(model: keras.layers.Layer, inputs: Any) -> np.ndarray:
    """All outputs of a model in evaluation mode, as one vector."""
    outputs = keras.tree.flatten(model(inputs, training=False))
    arrays = [np.ravel(keras.ops.convert_to_numpy(o)) for o in outputs]
    return np.concatenate(arrays).astype("float64")


def _runnable(model: keras.layers.Layer) -> list[keras.Model]:
    if is_task(model) or is_backbone(model):
        return [model]
    return [layer for layer in walk(model) if is_backbone(layer)]


def probe_of(model: keras.Model) -> dict[str, np.ndarray] | None:
    """One short sequence for each input, or None if an input is something else."""
    backbone = model.backbone if is_task(model) else model
    embedding = getattr(backbone, "token_embedding", None)
    if embedding is None:
        return None
    vocabulary_size = embedding.input_dim
    ids = np.random.default_rng(0).integers(0, vocabulary_size, (1, _PROBE_LENGTH))
    # An encoder and a decoder are given the same text.
    plain = {
        name: name.removeprefix("encoder_").removeprefix("decoder_")
        for name in model.input
    }
    try:
        arrays = text_inputs(plain.values(), ids.astype("int32"))
    except ArgumentError:
        return None
    return {name: arrays[plain[name]] for name in plain}
