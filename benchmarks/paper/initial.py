"""Initial values of a decoder that are less a matter of luck."""

import keras
import numpy as np


def initialise(model: keras.Model, scale, seed: int) -> None:
    """Gives a decoder the embedding's scale and FFNs nested in one another.

    Two widths of one seed then begin alike but for the neurons that the narrower one
    lacks, so that their difference is less noisy. The values of an FFN are uniform
    within Glorot's bounds for the width that it has.

    Args:
        model: a `decoder`, not trained.
        scale: `Scale`, whose `embedding_stddev` and `nested` count.
        seed: int.
    """
    embedding = model.get_layer("token_embedding")
    stddev = embedding.embeddings_initializer.stddev
    embedding.embeddings.assign(
        embedding.embeddings * (scale.embedding_stddev / stddev)
    )
    if scale.nested is None:
        return
    blocks = [layer for layer in model.layers if layer.name.startswith("block_")]
    for i, block in enumerate(blocks):
        up = block.ffn.up_kernel
        model_dim, width = up.shape
        shape = (3, scale.width(scale.nested), model_dim)
        values = np.random.default_rng([seed, i]).uniform(-1.0, 1.0, shape)
        values = values[:, :width] * np.sqrt(6.0 / (width + model_dim))
        up.assign(values[0].T)
        block.ffn.gate_kernel.assign(values[1].T)
        block.ffn.down_kernel.assign(values[2])
