"""What was called in the same graphs as a model's layers. Seen with Keras 3.15.1.

A layer knows nothing of what holds it. But each call on symbolic tensors is noted, by
the layer that is called and by those that made its inputs: so a KerasHub backbone,
which its task calls on the backbone's own inputs, is found from any of its layers.
"""

from collections.abc import Iterable
from typing import Any

import keras

from keras_idea._keras.layers import walk


def layers_around(
    model: keras.layers.Layer, held: Iterable[keras.layers.Layer]
) -> list[keras.layers.Layer]:
    """The layers outside of a model, called in its graphs, that hold some of `held`.

    Of those that hold one another the outermost ones.
    """
    inside, wanted = {id(layer) for layer in walk(model)}, set(map(id, held))
    found = [
        layer
        for layer in _connected(list(walk(model)))
        if isinstance(layer, keras.layers.Layer)
        and id(layer) not in inside
        and any(id(part) in wanted for part in walk(layer))
    ]
    parts = {id(part) for layer in found for part in walk(layer) if part is not layer}
    return [layer for layer in found if id(layer) not in parts]


def _connected(operations: list[Any]) -> list[Any]:
    """Operations, and all that are joined to them by the calls of graphs."""
    seen: dict[int, Any] = {}
    while operations:
        operation = operations.pop()
        if id(operation) in seen:
            continue
        seen[id(operation)] = operation
        for node in [*operation._inbound_nodes, *operation._outbound_nodes]:
            operations.append(node.operation)
            for tensor in node.input_tensors:
                operations.append(tensor._keras_history.operation)
    return list(seen.values())
