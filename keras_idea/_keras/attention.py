"""What attention layers are made of. Seen with Keras 3.15.1 and KerasHub 0.32."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

#: Attributes in which the layers of Keras and KerasHub hold their projections.
_NAMES = (
    ("_query_dense", "query_dense", "query"),
    ("_key_dense", "key_dense", "key"),
    ("_value_dense", "value_dense", "value"),
    ("_output_dense", "output_dense", "output_projection"),
)
#: How attention layers, and what holds them, call their numbers of heads.
_QUERY_HEADS = ("num_query_heads", "num_heads", "num_attention_heads")
_KEY_VALUE_HEADS = ("num_key_value_heads", "effective_num_kv_heads")


class Projections(NamedTuple):
    """What makes the heads of an attention layer, and what reads them.

    One is None where another attention layer has it.
    """

    query: Any
    key: Any
    value: Any
    output: Any
    gate: Any


def projections_of(layer: keras.layers.Layer) -> Projections | None:
    """The `Projections` of an attention layer; None of any other layer."""
    held = {**vars(layer), **vars(layer).get("_modules", {})}  # torch keeps them apart
    found = [[held[name] for name in names if name in held] for names in _NAMES]
    if not all(found):
        return None
    query, key, value, output = (each[0] for each in found)
    return Projections(query, key, value, output, held.get("_gate_dense"))


def numbers_of_heads(layer: keras.layers.Layer) -> tuple[int, int]:
    """The query heads and the key/value heads of an attention layer."""
    parts = projections_of(layer)
    if parts is None or isinstance(parts.query, keras.layers.Dense):
        return layer.num_heads, layer.num_key_value_heads
    shapes = parts.query.partial_output_shape, parts.key.partial_output_shape
    return shapes[0][-2], shapes[1][-2]


def set_numbers_of_heads(
    layer: keras.layers.Layer, query_heads: int, key_value_heads: int, head_dim: int
) -> None:
    """Has an attention layer, or what holds it, know how many heads there are.

    Attributes that the layer does not have are skipped; `head_dim`, where it followed
    from the heads.
    """
    _set(layer, _KEY_VALUE_HEADS, key_value_heads)
    _set(layer, _QUERY_HEADS, query_heads)
    if vars(layer).get("head_dim", 0) is None:
        layer.head_dim = head_dim


def _set(layer: keras.layers.Layer, names: Sequence[str], value: int) -> None:
    for public in names:
        for name in (public, f"_{public}"):
            if name in vars(layer):
                setattr(layer, name, value)
