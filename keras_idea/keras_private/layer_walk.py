"""The layers of a model, however deeply nested. Seen with Keras 3.15.1.

`Model.layers` has the outermost ones alone, and a layer that is no model has no list.
"""

from collections.abc import Iterator
from typing import Any

import keras

from keras_idea.errors import ArgumentError


def sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers that a layer holds itself, in the order in which it got them.

    `Sequential.layers` leaves out the input layer.
    """
    return layer._layers


def all_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A model and all layers in it, a teacher that is not pruned too."""
    return model._flatten_layers()


def walk(model: Any) -> Iterator[Any]:
    """All layers of a model that may be pruned, each once, itself first.

    `all_layers` goes into the teacher of a `keras.distillation.Distiller`, which is
    never pruned.
    """
    if not isinstance(model, keras.layers.Layer):
        raise ArgumentError(
            f"`model` must be a Keras model or layer. Received: {type(model).__name__}."
        )
    return _walk(model, set())


def student_of(model: Any) -> Any:
    """The model that is pruned: of a `Distiller` the student, else itself."""
    distilled = isinstance(model, keras.distillation.Distiller)
    return model.student if distilled else model


def has_call(layer: keras.layers.Layer) -> bool:
    """Whether a layer can be called; a model that is only trained need have no `call`.

    Its `train_step` calls what it holds: an encoder and a decoder, for one.
    """
    none = keras.Model.call, keras.layers.Layer.call
    return getattr(layer.call, "__func__", None) not in none


def is_built(layer: keras.layers.Layer) -> bool:
    """Whether a layer has its variables, itself; of one without `call` they say so."""
    return layer.built or not has_call(layer)


def called_parts(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer, if it can be called; else what it holds that can be."""
    if has_call(layer):
        return [layer]
    return [part for held in sublayers(layer) for part in called_parts(held)]


def _walk(layer: Any, seen: set[int]) -> Iterator[Any]:
    if id(layer) in seen:  # held by two others
        return
    seen.add(id(layer))
    yield layer
    student = student_of(layer)
    for sublayer in sublayers(layer) if student is layer else [student]:
        yield from _walk(sublayer, seen)
