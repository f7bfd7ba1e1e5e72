"""A functional model without models in it. Seen with Keras 3.15.1."""

from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.layers import copy_flags, parts_not_rematerialized
from keras_idea.keras_private.models import Functional, nodes_of


def flat_model(model: keras.Model) -> keras.Model:
    """The same layers as one graph, in which no model is one layer.

    A KerasHub task calls its backbone on the backbone's own inputs. Whatever it does to
    the outputs (embeddings transposed, a cap, a head) is called again on the
    backbone's own output, with the arguments that Keras has recorded.

    Returns:
        keras.Model: `model` itself, if there is none in it, or if it is no functional
        model.

    Raises:
        ArgumentError: if a model in it is called on something else than its own inputs,
            or if there are several.
    """
    if not isinstance(model, Functional):
        return model
    nodes = nodes_of(model)
    nested = [node for node in nodes if isinstance(node.operation, Functional)]
    if not nested:
        return model
    node = nested[0]
    inner = node.operation
    own = {id(tensor) for tensor in keras.tree.flatten(inner.input)}
    if len(nested) > 1 or {id(tensor) for tensor in node.input_tensors} != own:
        raise ArgumentError(
            f"The blocks inside of '{inner.name}' cannot be read: '{model.name}' calls "
            "it on other tensors than its own inputs, or calls several models. "
            f"Call '{inner.name}' on `{inner.name}.input`, as KerasHub's tasks do, or "
            "pass features=False."
        )
    if parts_not_rematerialized(inner):
        warn_user(
            f"The blocks of '{inner.name}' are called one by one, so its RematScope is "
            "lost. Make its layers in a RematScope too, or pass features=False."
        )
    known: dict[int, Any] = {id(tensor): tensor for tensor in model.inputs}
    _remember(known, node, inner.output)
    for each in nodes:
        if each is not node:
            args, kwargs = each.arguments.fill_in(known)
            _remember(known, each, each.operation(*args, **kwargs))
    outputs = keras.tree.map_structure(lambda tensor: known[id(tensor)], model.output)
    flat = keras.Model(model.input, outputs, name=f"{model.name}_flat")
    copy_flags(model, flat)
    return flat


def _remember(known: dict[int, Any], node: Any, outputs: Any) -> None:
    pairs = zip(node.outputs, keras.tree.flatten(outputs), strict=True)
    known.update((id(old), new) for old, new in pairs)
