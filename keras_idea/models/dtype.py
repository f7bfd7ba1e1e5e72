"""What a model that is made already computes in."""

import keras

from keras_idea.keras_private.layer_walk import all_layers
from keras_idea.models.decoder import FLOAT_LOGITS


def compute_in(model: keras.Model, dtype: str) -> keras.Model:
    """Has every layer of a model compute in a dtype; the weights stay float32.

    No functions of it may be traced yet.
    """
    if dtype in ("bfloat16", "float16"):
        dtype = f"mixed_{dtype}"  # whose layers cast their weights, which others do not
    for layer in all_layers(model):
        # The loss must not be computed in less, see `decoder`.
        if layer.name != FLOAT_LOGITS:
            layer.dtype_policy = dtype
    return model
