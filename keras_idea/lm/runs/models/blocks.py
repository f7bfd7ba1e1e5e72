"""The transformer blocks of a run's models, each computed again where that is asked."""

import keras

from keras_idea.errors import ConfigError
from keras_idea.keras_private.layer_walk import walk
from keras_idea.keras_private.layers import rematerialize
from keras_idea.models import DecoderBlock
from keras_idea.surgery import find_ffns


def rematerialize_blocks(model: keras.Model) -> None:
    """Computes the model's blocks again in the backward pass, instead of keeping them.

    Raises:
        ConfigError: if the blocks drop at random: Keras 3.15 drops others in the
            second pass.
    """
    for block in transformer_blocks(model):
        for layer in walk(block):
            if isinstance(layer, keras.layers.Dropout) and layer.rate:
                raise ConfigError(
                    f"`run.rematerialize` does not support the dropout of "
                    f"{layer.path!r}: the second computation would drop other numbers. "
                    f"Received: dropout={layer.rate}. Set `run.rematerialize` to false."
                )
        rematerialize(block)


def transformer_blocks(model: keras.Model) -> list[keras.layers.Layer]:
    """The layers of a model, each of which holds one FFN and what goes with it.

    It is this package's decoder, or a KerasHub `CausalLM`; they are in its order.
    """
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return [layer for layer in model.layers if isinstance(layer, DecoderBlock)]
    owners = {id(layer) for ffn in find_ffns(model) for layer in ffn.layers}
    return [
        layer
        for layer in backbone.layers
        if any(id(part) in owners for part in walk(layer))
    ]
