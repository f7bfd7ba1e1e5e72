"""Weights that KerasHub 0.32 converts otherwise than transformers reads them."""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.errors import LoadRefused

# What a Mistral's variables are called, and whether the matrix is transposed.
_MISTRAL = {
    "self_attention_layernorm/scale": ("input_layernorm", False),
    "self_attention/query/kernel": ("self_attn.q_proj", True),
    "self_attention/key/kernel": ("self_attn.k_proj", True),
    "self_attention/value/kernel": ("self_attn.v_proj", True),
    "self_attention/attention_output/kernel": ("self_attn.o_proj", True),
    "feedforward_layernorm/scale": ("post_attention_layernorm", False),
    "feedforward_gate_dense/kernel": ("mlp.gate_proj", True),
    "feedforward_intermediate_dense/kernel": ("mlp.up_proj", True),
    "feedforward_output_dense/kernel": ("mlp.down_proj", True),
}
# KerasHub normalizes queries and keys with it, whatever the config says.
_QK_EPSILON = {"qwen3": 1e-5, "qwen3_moe": 1e-6}


def mend_weights(
    backbone: Any, hf_config: Mapping[str, Any], folder: pathlib.Path
) -> None:
    """Assigns what KerasHub's converter rounds or scales wrongly."""
    kind = hf_config["model_type"]
    if kind == "mistral":
        _unrounded(backbone, folder)
    if kind in _QK_EPSILON:
        _scale_queries_and_keys(backbone, hf_config["rms_norm_eps"], _QK_EPSILON[kind])
    if kind in ("gemma2", "gemma3_text"):
        _scale_queries(
            backbone, hf_config["head_dim"] / hf_config["query_pre_attn_scalar"]
        )
    if kind == "roberta":
        _add_segment(backbone, folder)


def _unrounded(backbone: Any, folder: pathlib.Path) -> None:
    """A Mistral's weights, which the converter rounds to float16."""
    tensors = dict(_tensors(folder))
    head = {
        "token_embedding/embeddings": ("model.embed_tokens.weight", False),
        "token_embedding/reverse_embeddings": ("lm_head.weight", True),
        "sequence_output_layernorm/scale": ("model.norm.weight", False),
    }
    for variable in backbone.variables:
        key, transposed = head.get(variable.path, ("", False))
        block, _, rest = variable.path.partition("/")
        if not key:
            name, transposed = _MISTRAL[rest]
            key = f"model.layers.{block.rpartition('_')[2]}.{name}.weight"
        value = tensors[key]()
        value = np.transpose(value) if transposed else value
        variable.assign(value.reshape(variable.shape))


def _tensors(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Name and function that reads it, of each tensor of a folder."""
    import safetensors

    for file in sorted(folder.glob("*.safetensors")):
        opened = safetensors.safe_open(file, framework="np")
        for name in opened.keys():
            yield name, lambda opened=opened, name=name: opened.get_tensor(name)


def _scale_queries_and_keys(backbone: Any, epsilon: float, fixed: float) -> None:
    r"""Makes KerasHub's fixed epsilon act as the checkpoint's own.

    $c x / \sqrt{c^2 m + \epsilon'} = x / \sqrt{m + \epsilon}$ for
    $c = \sqrt{\epsilon' / \epsilon}$, so the kernels in front of the norms are scaled.
    """
    if epsilon <= 0:
        raise LoadRefused(
            f"`rms_norm_eps` must be positive. Received: rms_norm_eps={epsilon}. "
            "Correct the config."
        )
    factor = math.sqrt(fixed / epsilon)
    for variable in backbone.variables:
        if variable.path.endswith(("attention/query/kernel", "attention/key/kernel")):
            variable.assign(keras.ops.multiply(variable.value, factor))


def _scale_queries(backbone: Any, share: float) -> None:
    r"""Makes KerasHub's division by the root of a head's size the checkpoint's own.

    $c q / \sqrt{d} = q / \sqrt{s}$ for $c = \sqrt{d / s}$: the queries' kernels are
    scaled, or the norm behind them, which multiplies by $1 + w$.
    """
    if share == 1:
        return
    factor, paths = math.sqrt(share), {v.path: v for v in backbone.variables}
    for path, variable in paths.items():
        norm = path.replace("query/kernel", "query_norm/scale")
        if not path.endswith("attention/query/kernel"):
            continue
        if norm in paths:
            paths[norm].assign(factor * (1 + paths[norm].value) - 1)
        else:
            variable.assign(factor * variable.value)


def _add_segment(backbone: Any, folder: pathlib.Path) -> None:
    """Adds a RoBERTa's embedding of the first segment, which the converter leaves out.

    KerasHub's has no segments, so it goes to every position.
    """
    name = "roberta.embeddings.token_type_embeddings.weight"
    added = np.asarray(dict(_tensors(folder))[name]()[0], "float32")
    for variable in backbone.variables:
        if variable.path.endswith("position_embedding/embeddings"):
            variable.assign_add(added)
