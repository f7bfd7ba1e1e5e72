"""Tiny encoders of KerasHub, and batches for them."""

import numpy as np

from tests.support.hub_models import ENCODERS, LENGTH, VOCABULARY, randomize


def backbone(name):
    import keras_hub

    row = ENCODERS[name]
    cls = getattr(keras_hub.models, row.backbone)
    return randomize(cls(**row.arguments), row.scale)


def inputs(model, size, seed=0):
    """Random values for whatever a backbone takes."""
    rng, values = np.random.default_rng(seed), {}
    named = model.input if isinstance(model.input, dict) else {"images": model.input}
    for name, tensor in named.items():
        shape = (size, *(length or LENGTH for length in tensor.shape[1:]))
        if "float" in tensor.dtype:
            values[name] = rng.normal(size=shape).astype(tensor.dtype)
        elif name.endswith("padding_mask"):
            values[name] = np.ones(shape, tensor.dtype)
        else:
            limit = 2 if name.startswith("segment") else VOCABULARY
            values[name] = rng.integers(0, limit, shape).astype(tensor.dtype)
    return values if isinstance(model.input, dict) else values["images"]
