"""What attention layers are made of. Seen with Keras 3.15.1 and KerasHub 0.32."""

from typing import Any

import keras

#: Attributes in which the layers of Keras and KerasHub hold their projections.
_NAMES = (
    ("_query_dense", "query_dense", "query"),
    ("_key_dense", "key_dense", "key"),
    ("_value_dense", "value_dense", "value"),
    ("_output_dense", "output_dense", "output_projection"),
)


def projections_of(layer: keras.layers.Layer) -> list[Any] | None:
    """An attention layer's query, key, value and output layers; None of any other.

    One is None where another attention layer has it.
    """
    held = {**vars(layer), **vars(layer).get("_modules", {})}  # torch keeps them apart
    found = [[held[name] for name in names if name in held] for names in _NAMES]
    return [each[0] for each in found] if all(found) else None


def tell_heads(layer: Any) -> None:
    """Has an attention layer of Keras say how many heads its projections make."""
    parts = layer._query_dense, layer._key_dense
    query, key = (part.partial_output_shape[-2] for part in parts)
    if isinstance(layer, keras.layers.MultiHeadAttention):
        layer._num_heads = query
    else:
        layer.num_query_heads, layer.num_key_value_heads = query, key
