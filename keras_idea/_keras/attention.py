"""What attention layers are made of. Seen with Keras 3.15.1 and KerasHub 0.32."""

from typing import Any, NamedTuple

import keras

#: Attributes in which the layers of Keras and KerasHub hold their projections.
_NAMES = (
    ("_query_dense", "query_dense", "query"),
    ("_key_dense", "key_dense", "key"),
    ("_value_dense", "value_dense", "value"),
    ("_output_dense", "output_dense", "output_projection"),
)


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


def tell_heads(layer: Any) -> None:
    """Has an attention layer of Keras say how many heads its projections make."""
    parts = projections_of(layer)
    assert parts is not None
    query, key = (part.partial_output_shape[-2] for part in (parts.query, parts.key))
    if isinstance(layer, keras.layers.MultiHeadAttention):
        layer._num_heads = query
    else:
        layer.num_query_heads, layer.num_key_value_heads = query, key
