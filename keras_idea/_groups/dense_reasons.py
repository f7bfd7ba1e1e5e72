"""Why the outputs of a Dense layer cannot be pruned, whatever reads them."""

import operator

import keras

from keras_idea._keras.layers import walk
from keras_idea._keras.symbolic import Recording
from keras_idea._validation import what_was_raised


def why_not_plain(layer: keras.layers.Layer) -> str | None:
    """Why the numbers in a layer's kernel are not those that it multiplies by."""
    if layer.lora_enabled:
        return f"'{layer.path}' has LoRA enabled"
    if layer.quantization_mode is not None:
        return f"'{layer.path}' is quantized ({layer.quantization_mode})"
    return None


def why_not_called(layer: keras.layers.Layer, recordings: list[Recording]) -> str:
    """Why a layer was not called as its model was: by what holds it, or at all."""
    held = []
    for recording in recordings:
        for holder in recording.opaque:
            parts = list(walk(holder))
            if any(part is layer for part in parts):
                held.append((len(parts), recording, holder))
    if not held:
        return "the model's `call` does not call it"
    _, recording, holder = min(held, key=operator.itemgetter(0))
    return why_opaque(holder, recording)


def why_opaque(holder: keras.layers.Layer, recording: Recording) -> str:
    """Why it is not known what a layer does with those in it."""
    cause, error = recording.causes.get(holder, (holder, recording.opaque[holder]))
    return (
        f"'{holder.name}', which holds it, cannot be called on a symbolic batch of 2: "
        f"{type(cause).__name__} '{cause.name}' raised {what_was_raised(error)}"
    )
