"""This package's decoder as a stock Llama3: the same architecture, other layouts."""

import keras

from keras_idea.errors import ExportRefused
from keras_idea.extras import require
from keras_idea.layers import GatedFFN
from keras_idea.models import DecoderBlock


def as_llama3(model: keras.Model) -> keras.Model:
    """Makes the KerasHub `Llama3CausalLM` that computes what a decoder computes.

    Args:
        model: keras.Model made by `keras_idea.models.decoder` with `GatedFFN`
            layers of one width, or the compacted form of one.

    Returns:
        `keras_hub.models.Llama3CausalLM` without a preprocessor, in float32.

    Raises:
        ExportRefused: if keras_hub is missing, or the model is no such decoder, or
            heads of it were pruned.
    """
    what = "Exporting this package's decoder as a KerasHub Llama3"
    keras_hub = require("keras_hub", what, "hub", ExportRefused)
    layers = {layer.name: layer for layer in model.layers}
    blocks = [layer for layer in model.layers if isinstance(layer, DecoderBlock)]
    _check(model, layers, blocks)
    embedding, attention = layers["token_embedding"], blocks[0].attention
    if attention.num_heads * attention.head_dim != embedding.output_dim:
        raise ExportRefused(
            f"The decoder has {attention.num_heads} query heads of "
            f"{attention.head_dim} features, and in a Llama3 they make up the "
            f"{embedding.output_dim} features of the model: heads of it were pruned. "
            "Prune its neurons alone, or prune the heads of a Mistral or Qwen3."
        )
    backbone = keras_hub.models.Llama3Backbone(
        vocabulary_size=embedding.input_dim,
        num_layers=len(blocks),
        num_query_heads=attention.num_heads,
        hidden_dim=embedding.output_dim,
        intermediate_dim=blocks[0].ffn.hidden_dim,
        num_key_value_heads=attention.num_key_value_heads,
        rope_max_wavelength=attention.rope_max_wavelength,
        layer_norm_epsilon=blocks[0].rms_norm_epsilon,
        tie_word_embeddings="logits" not in layers,
        dtype="float32",
    )
    values = [embedding.embeddings]
    if "logits" in layers:
        values.append(layers["logits"].kernel)
    for block in blocks:
        values += _block_values(block)
    values.append(layers["final_norm"].scale)
    for variable, value in zip(backbone.variables, values, strict=True):
        variable.assign(keras.ops.reshape(value, variable.shape))
    return keras_hub.models.Llama3CausalLM(backbone=backbone, preprocessor=None)


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
    dense = (
        attention.query,
        attention.key,
        attention.value,
        attention.output_projection,
    )
    return [
        *(layer.kernel for layer in dense),
        block.attention_norm.scale,
        # The linear matrix comes first; KerasHub calls the activated one "gate".
        ffn.gate_kernel,
        ffn.up_kernel,
        ffn.down_kernel,
        block.ffn_norm.scale,
    ]
