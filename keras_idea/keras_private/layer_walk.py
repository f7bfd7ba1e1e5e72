"""The layers of a model, however deeply nested."""

import keras


def walk(model):
    """All layers of a model that may be pruned, itself first.

    `Layer._flatten_layers` would go into the teacher of a
    `keras.distillation.Distiller`, which is never pruned.

    Raises:
        ValueError: if `model` is no Keras layer.
    """
    if not isinstance(model, keras.layers.Layer):
        raise ValueError(
            f"`model` must be a Keras model or layer. Received: {type(model).__name__}."
        )
    return _walk(model)


def student_of(model):
    """The model that is pruned: of a `Distiller` the student, else itself."""
    distilled = isinstance(model, keras.distillation.Distiller)
    return model.student if distilled else model


def _walk(layer):
    yield layer
    student = student_of(layer)
    for sublayer in layer._layers if student is layer else [student]:
        yield from _walk(sublayer)
