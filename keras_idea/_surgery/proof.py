"""Tests on the model itself, before any step, what was found about its neurons.

If the layers after a neuron do not read it, the outputs must be the same as if all its
weights were zero. Otherwise something else reads it, or another neuron has its index in
one of the matrices.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea import _processes as processes
from keras_idea._finding.find import FFN
from keras_idea._groups.cut import Cut
from keras_idea._graph.find import OPEN_SIZE
from keras_idea._groups.kinds import CHANNELS
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import (
    called_parts,
    stored_kernel,
    student_of,
    walk,
)
from keras_idea._keras.symbolic import example_arrays, open_sizes
from keras_idea._signals import held_back
from keras_idea._step.replicas import scope_of
from keras_idea._typing import Tensor
from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError

# Of batches.
_SIZES = (1, 4, 8, 16, 32, 50, 64, 100, 128, 256)


def open_sizes_for(ffns: Sequence[FFN]) -> contextlib.AbstractContextManager[None]:
    """A scope in which what a model leaves open is large enough for convolutions."""
    channels = any(ffn.kind == CHANNELS for ffn in ffns)
    return open_sizes(OPEN_SIZE) if channels else contextlib.nullcontext()


class _InferenceModel(keras.Model):
    """A model in evaluation mode, whose `predict` traces nothing of the model's own."""

    def __init__(self, model: keras.layers.Layer) -> None:
        super().__init__(name="asked")
        self.model = model
        self.built = True  # else Keras calls it once, operation by operation

    def call(self, inputs: Any) -> Any:
        return self.model(inputs, training=False)

    def answer(self, inputs: Any) -> Any:
        """The outputs, compiled where each operation would be by itself."""
        if keras.backend.backend() != "tensorflow":
            return self.predict_on_batch(inputs)
        # `predict` cannot be called while a train step is being traced.
        made = self(keras.tree.map_structure(keras.ops.convert_to_tensor, inputs))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, made)


def prove(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Removes one neuron of each Dense FFN in two ways and compares the outputs.

    In an attention layer it removes one key/value head with its query heads. The model
    must be in sync and is left as it was, random state included. Nothing is checked if
    several processes train. Warns if the model cannot be called on an example. In a
    model without `call`, each model in it is checked. Refuses an FFN if the two ways
    give different outputs.
    """
    found = [ffn for ffn in ffns if ffn.weights.makers]
    if processes.count() > 1:
        return
    for part in called_parts(student_of(model)):
        inside = set(map(id, walk(part)))
        theirs = [f for f in found if inside.issuperset(map(id, f.layers))]
        if theirs:
            _prove(model, part, theirs)


def _prove(model: keras.Model, part: keras.layers.Layer, found: Sequence[FFN]) -> None:
    """As `prove`, of FFNs in a part of a model that can be called."""
    with open_sizes_for(found):
        inputs = example_arrays(part)
    if inputs is None:
        _warn_of_no_proof(part, "the shapes or types of its inputs are not known")
        return
    with scope_of(model):
        asked = _InferenceModel(part)
    try:
        try:
            same = _same(asked, inputs, found)
        except Exception:
            inputs = _batch_for(asked, inputs)
            same = _same(asked, inputs, found)
    except Exception as error:  # out of memory, for one
        _warn_of_no_proof(part, f"the model raised {what_was_raised(error)}")
        return
    if same is not False:
        return
    for ffn in found:
        if _same(asked, inputs, [ffn]) is False:
            raise ArgumentError(
                f"The {ffn.units} of {ffn.name} do not act each on its own, "
                "so they cannot be pruned: removing one that no layer reads changes "
                "the model's output, so something else reads it (for example, returned "
                "attention scores). Leave it out: groups=lambda ffn: ffn.name != "
                f"{ffn.name!r}."
            )


def _warn_of_no_proof(part: keras.layers.Layer, why: str) -> None:
    warn_user(
        f"Pruning of '{part.name}' was not tested on an example: {why}. Compare the "
        "outputs of the narrow model with those of the masked one on your data."
    )


def _batch_for(asked: keras.Model, inputs: Any) -> Any:
    """The inputs, again and again, in the first size on which a model can be traced.

    For a model whose code needs a certain batch: a trace takes no memory.
    """
    for size in (len(keras.tree.flatten(inputs)[0]), *_SIZES):
        batch = keras.tree.map_structure(
            lambda array, size=size: np.resize(array, (size, *array.shape[1:])), inputs
        )
        with contextlib.suppress(Exception):
            asked.compute_output_spec(
                keras.tree.map_structure(
                    lambda array: keras.KerasTensor(array.shape, array.dtype.name),
                    batch,
                )
            )
            return batch
    return inputs


def _same(asked: keras.Model, inputs: Any, ffns: Sequence[FFN]) -> bool | None:
    """Whether neurons that are not read equal neurons of zeros; None: not known."""
    active = [(ffn, _active(ffn)) for ffn in ffns]
    cuts = [(cut, neuron) for ffn, neuron in active for cut in ffn.cuts()]
    readers = {
        (id(cut.variable), cut.axis)
        for ffn in ffns
        for cut in ffn.kernel_cuts()[_kernels_made(ffn) :]
    }
    saved = [cut.of_unit(neuron) for cut, neuron in cuts]
    try:
        for cut, neuron in cuts:
            if (id(cut.variable), cut.axis) in readers:
                _put(cut, neuron, 0.0)
        unread = _predict(asked, inputs)
        for cut, neuron in cuts:
            _put(cut, neuron, 0.0)
        if _equal(unread, _predict(asked, inputs)):
            return True
        for (cut, neuron), value in zip(cuts, saved, strict=True):
            if (id(cut.variable), cut.axis) not in readers:
                _put(cut, neuron, value)
        return False if _equal(unread, _predict(asked, inputs)) else None
    finally:
        with held_back():
            for (cut, neuron), value in zip(cuts, saved, strict=True):
                _put(cut, neuron, value)


def _kernels_made(ffn: FFN) -> int:
    """The number of kernels that make its neurons: two layers may have one."""
    makers = ffn.weights.makers
    return len(
        makers
        if ffn.kind == CHANNELS
        else {id(stored_kernel(layer)) for layer in makers}
    )


def _active(ffn: FFN) -> int:
    kept = ffn.kept_neurons()
    return int(kept[len(kept) // 3])


def _put(cut: Cut, neuron: int, value: Tensor | float) -> None:
    """Gives the weights of one neuron other values."""
    old = cut.variable.value
    at = cut.spread(np.arange(cut.neurons) == neuron)
    if not isinstance(value, float):
        value = cut.repeated(value)
    new = keras.ops.where(at, keras.ops.cast(value, old.dtype), old)
    cut.variable.assign(new)


def _predict(asked: keras.Model, inputs: Any) -> list[np.ndarray]:
    """What the model answers, with the same random numbers each time."""
    weights = set(map(id, asked.weights))
    seeds = [v for v in asked.variables if id(v) not in weights]
    before = [keras.ops.copy(seed.value) for seed in seeds]
    try:
        return keras.tree.flatten(asked.answer(inputs))
    finally:
        for seed, value in zip(seeds, before, strict=True):
            seed.assign(value)


def _equal(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(
        np.array_equal(np.asarray(a, "float32"), np.asarray(b, "float32"), True)
        for a, b in pairs
    )
