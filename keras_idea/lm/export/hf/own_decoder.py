"""This package's decoder as a stock Llama3 or Mistral: the same, in other layouts."""

import keras

from keras_idea.errors import ExportRefused
from keras_idea.layers import GatedFFN
from keras_idea.models import DecoderBlock
from keras_idea.validation import require

_NO_WINDOW = 2**20  # tokens, of which a Mistral sees no more


def as_kerashub(model: keras.Model) -> keras.Model:
    """Makes the KerasHub task that computes what a decoder of this package computes.

    It is a Llama3, or a Mistral, whose config holds the size of a head, where heads
    were pruned. A Mistral's embedding and its last matrix are two. It is in float32 and
    has no preprocessor.

    Raises:
        ExportRefused: if keras_hub is missing, or the model is no such decoder.
    """
    what = "Exporting this package's decoder as a KerasHub model"
    keras_hub = require("keras_hub", what, "hub", ExportRefused)
    layers = {layer.name: layer for layer in model.layers}
    blocks = [layer for layer in model.layers if isinstance(layer, DecoderBlock)]
    _check(model, layers, blocks)
    embedding, attention = layers["token_embedding"], blocks[0].attention
    tied = "logits" not in layers
    arguments = {
        "vocabulary_size": embedding.input_dim,
        "num_layers": len(blocks),
        "num_query_heads": attention.num_heads,
        "hidden_dim": embedding.output_dim,
        "intermediate_dim": blocks[0].ffn.hidden_dim,
        "num_key_value_heads": attention.num_key_value_heads,
        "rope_max_wavelength": attention.rope_max_wavelength,
        "layer_norm_epsilon": blocks[0].rms_norm_epsilon,
        "dtype": "float32",
    }
    of_usual_size = attention.num_heads * attention.head_dim == embedding.output_dim
    if of_usual_size:
        backbone = keras_hub.models.Llama3Backbone(
            **arguments, tie_word_embeddings=tied
        )
    else:
        backbone = keras_hub.models.MistralBackbone(
            **arguments, head_dim=attention.head_dim, sliding_window=_NO_WINDOW
        )
    values = [embedding.embeddings]
    if not tied:
        values.append(layers["logits"].kernel)
    elif not of_usual_size:  # a Mistral has two matrices
        values.append(keras.ops.transpose(embedding.embeddings))
    for block in blocks:
        values += _block_values(block)
    values.append(layers["final_norm"].scale)
    for variable, value in zip(backbone.variables, values, strict=True):
        variable.assign(keras.ops.reshape(value, variable.shape))
    task = "Llama3CausalLM" if of_usual_size else "MistralCausalLM"
    return getattr(keras_hub.models, task)(backbone=backbone, preprocessor=None)


def _check(
    model: keras.Model,
    layers: dict[str, keras.layers.Layer],
    blocks: list[DecoderBlock],
) -> None:
    # Llama3 has one width, SiLU and no biases; what is exported is float32.
    plain = [
        isinstance(block.ffn, GatedFFN)
        and not block.ffn.use_bias
        and block.ffn.activation is keras.activations.silu
        and block.compute_dtype == "float32"
        and block.ffn.hidden_dim == getattr(blocks[0].ffn, "hidden_dim", None)
        for block in blocks
    ]
    if plain and all(plain) and {"token_embedding", "final_norm"} <= set(layers):
        return
    raise ExportRefused(
        f"Model '{model.name}' is no decoder that a KerasHub Llama3 equals: it must "
        "come from `keras_idea.models.decoder` and be compacted, its FFNs without "
        "biases, with SiLU, all of one width, in float32. To train a KerasHub model "
        'from the start, write hub = "llama3" under [model].'
    )


def _block_values(block: DecoderBlock) -> list[keras.Variable]:
    """The values of a Llama3 block's variables, in its order; shapes differ."""
    attention, ffn = block.attention, block.ffn
    return [
        attention.query.kernel,
        attention.key.kernel,
        attention.value.kernel,
        attention.output_projection.kernel,
        block.attention_norm.scale,
        # The linear matrix comes first; KerasHub calls the activated one "gate".
        ffn.gate_kernel,
        ffn.up_kernel,
        ffn.down_kernel,
        block.ffn_norm.scale,
    ]
