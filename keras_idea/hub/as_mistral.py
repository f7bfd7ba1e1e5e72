"""A Llama as a Mistral, whose config can say that it has fewer heads."""

from typing import Any

import keras

from keras_idea._validation import require
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_function
from keras_idea.hub.families import is_task
from keras_idea.hub.kept import keep, kept_of
from keras_idea.hub.rebuild import check_plain

#: The backbones that it takes.
LLAMAS = ("LlamaBackbone", "Llama3Backbone")
# What a Llama's config may say that a Mistral's cannot, and what it must say then.
_ROTARY = {
    "rope_position_scaling_factor": 1.0,
    "rope_frequency_adjustment_factor": None,
}
_TAKEN = (
    "vocabulary_size num_layers num_query_heads num_key_value_heads hidden_dim "
    "intermediate_dim rope_max_wavelength layer_norm_epsilon dropout"
)


def as_mistral(model: keras.Model) -> keras.Model:
    """Makes a stock KerasHub Mistral that computes what a KerasHub Llama computes.

    A Llama's config cannot say that a model has fewer heads. A Mistral's can, and the
    rest of the two is the same. Use it before you prune the key/value heads of a Llama
    2 or Llama 3: with `kv_groups` in `targets` or `kinds`, or with `shrink`.

    If the Llama's embedding is tied to its last matrix, the Mistral has two matrices
    of the same values, and so more parameters.

    Args:
        model: keras.Model. A KerasHub `LlamaCausalLM`, `Llama3CausalLM`, or the
            backbone of one. It is not changed.

    Returns:
        A `MistralCausalLM` or `MistralBackbone`, not compiled. It has the tokenizer of
        a Llama 2. That of a Llama 3 is of a kind that KerasHub's Mistral cannot have:
        the model then has no preprocessor. Keep the Llama's.

    Raises:
        ValueError: If the model is no Llama, or if its rotary positions are scaled
            (Llama 3.1 and later), which a Mistral's config cannot say.

    Example:
    >>> import keras_hub
    >>> llama = keras_hub.models.Llama3Backbone(
    ...     vocabulary_size=32, num_layers=2, num_query_heads=4,
    ...     num_key_value_heads=2, hidden_dim=16, intermediate_dim=24,
    ... )
    >>> mistral = ki.hub.as_mistral(llama)
    >>> [g.hidden_dim for g in ki.find_groups(mistral, ["kv_groups"])]
    [2, 2]
    """
    keras_hub = require("keras_hub", "as_mistral()", "hub")
    llama = model.backbone if is_task(model) else model
    config = _config(llama)
    check_plain(llama)
    backbone = keras_hub.models.MistralBackbone(**config, dtype=llama.dtype_policy)
    embedding = llama.token_embedding
    pairs = [(v, v.value) for v in llama.variables]
    if embedding.tie_weights:
        table = embedding.embeddings
        pairs.insert(1, (table, keras.ops.transpose(table.value)))
    for variable, (old, value) in zip(backbone.variables, pairs, strict=True):
        variable.trainable = old.trainable
        variable.assign(value)
    check_same_function(llama, backbone)
    keep(backbone, kept_of(llama))
    if not is_task(model):
        return backbone
    task = keras_hub.models.MistralCausalLM
    return task(backbone=backbone, preprocessor=_preprocessor(model.preprocessor))


def _config(llama: Any) -> dict[str, Any]:
    """The arguments of a Mistral's backbone, from those of a Llama's."""
    kind = type(llama).__name__
    if kind not in LLAMAS:
        raise ArgumentError(
            "as_mistral() takes a KerasHub LlamaCausalLM, Llama3CausalLM, or the "
            f"backbone of one. Received: {kind}."
        )
    config = llama.get_config()
    rotary = {name: config.get(name, neutral) for name, neutral in _ROTARY.items()}
    if rotary != _ROTARY:
        raise ArgumentError(
            f"'{llama.name}' scales its rotary positions, which a Mistral's config "
            f"cannot say. Received: {rotary}. Its key/value heads cannot be pruned; "
            "its neurons and blocks can."
        )
    head_dim = config["hidden_dim"] // config["num_query_heads"]
    taken = {name: config[name] for name in _TAKEN.split()}
    return {**taken, "sliding_window": None, "head_dim": head_dim}


def _preprocessor(preprocessor: Any) -> Any:
    """A Mistral's, of a Llama's; None if it cannot have the tokenizer."""
    proto = getattr(getattr(preprocessor, "tokenizer", None), "proto", None)
    if proto is None:  # it is not of SentencePiece
        return None
    models = require("keras_hub", "as_mistral()", "hub").models
    return models.MistralCausalLMPreprocessor(
        models.MistralTokenizer(proto=proto),
        sequence_length=preprocessor.sequence_length,
        add_start_token=preprocessor.add_start_token,
        add_end_token=preprocessor.add_end_token,
    )
