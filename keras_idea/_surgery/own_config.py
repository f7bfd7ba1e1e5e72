"""Layers of the user's own classes, whose config is to follow what is pruned in them.

A block that sizes its layers from an argument, such as `Block(ff_dim=48)`, keeps 48 in
its config. After narrowing, Keras would save fewer neurons and could not load them. If
an attribute of the block equals that number, it is set to the new width. This is then
checked: a block made from the new config must have the same shapes.
"""

import contextlib
import itertools
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._graph.find import followed, has_code
from keras_idea._graph.layers import ATTENTION, dense_of, slides
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import (
    config_number,
    has_call,
    set_config_number,
    stored_kernel,
    student_of,
    sublayers,
    walk,
)
from keras_idea._keras.models import Functional, made_of_tensors
from keras_idea._keras.symbolic import Call, Given, call_like, record
from keras_idea._keras.variables import without_values
from keras_idea._layers.ffn import FFNLayer
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.ffn import known_ffns


def calls_of(model: keras.layers.Layer) -> list[Call] | None:
    """All calls in a model, in their order; None: not all of it can be followed."""
    recordings = [followed(model), *([followed(model, True)] if has_code(model) else [])]
    if any(recording.opaque for recording in recordings):
        return None
    calls = [call for recording in recordings for call in recording.calls]
    functions = [
        (call.operation.activation, call.inputs[0].shape)
        for call in calls
        if type(call.operation) is keras.layers.Activation
    ]
    functions += [
        (layer.activation, (2, stored_kernel(layer).shape[-1]))
        for layer in walk(model)
        if dense_of(layer) is layer and layer.built
    ]
    return calls + [call for function in functions for call in _calls_in(*function)]


def _calls_in(activation: Any, shape: tuple[int, ...]) -> list[Call]:
    """The calls in an activation; none of a backend's own function, or of a layer."""
    if isinstance(activation, keras.layers.Layer):
        return []  # it would be built for this shape
    layer = keras.layers.Activation(activation, name="activation")
    layer.build(shape)
    recording = record(layer, lambda part: part is layer)
    return [] if recording.opaque else recording.calls


def first_difference(some: list[Call] | None, others: list[Call] | None) -> str | None:
    """The name of the first operation that differs in type or in its numbers.

    A layer may stand in another's place, as a plain FFN for a prunable one.
    """
    for one, other in zip(some or [], others or [], strict=False):
        kinds = [
            keras.layers.Layer
            if isinstance(call.operation, keras.layers.Layer)
            else type(call.operation)
            for call in (one, other)
        ]
        if kinds[0] is not kinds[1] or not _same(one, other):
            return type(one.operation).__name__
    return None


def _same(one: Call, other: Call) -> bool:
    numbers, others = _numbers(one), _numbers(other)
    return len(numbers) == len(others) and all(
        np.array_equal(a, b, equal_nan=True)
        for a, b in zip(numbers, others, strict=True)
    )


def _numbers(call: Call) -> list[np.ndarray]:
    """What an operation is given that is neither a tensor nor a variable."""
    held: list[Any] = list(call.arguments)
    if not isinstance(call.operation, keras.layers.Layer):
        held += keras.tree.flatten(list(vars(call.operation).values()))
    arrays = [
        np.asarray(keras.ops.convert_to_numpy(part))
        for part in held
        if isinstance(part, (int, float, np.ndarray, np.generic))
        or (keras.ops.is_tensor(part) and not isinstance(part, keras.KerasTensor))
    ]
    return [
        array.astype("float64") for array in arrays if array.dtype.kind not in "OSU"
    ]


_PRUNED = (FFNLayer, *ATTENTION)


#: A layer, the name of a number in its config, and the number that was there.
Change: TypeAlias = tuple[keras.layers.Layer, str, int]


def follow_widths(
    model: keras.layers.Layer, narrowed: Iterable[tuple[int, int]]
) -> list[keras.layers.Layer]:
    """Has the configs of blocks say how wide their FFNs are now.

    `narrowed` are the FFN widths before and after, as pairs. Returns the blocks whose
    configs cannot follow.
    """
    changed, stuck = set_widths(model, narrowed)
    for layer in {id(layer): layer for layer, _, _ in changed}.values():
        # KerasHub's configs forget other things (T5's bias), at any width.
        if not type(layer).__module__.startswith("keras_hub."):
            _warn_of_numbers(layer)
    return stuck


def warn_of_stuck(stuck: Iterable[keras.layers.Layer]) -> None:
    """Warns of blocks that Keras saves narrow, and could not load so."""
    for layer in stuck:
        warn_user(
            f"The config of {type(layer).__name__} '{layer.name}' makes layers of "
            "another width than pruning leaves in it: a file of the narrow model, "
            "saved whole (.keras), cannot be loaded. Give the block an argument for "
            "the width of each FFN, or for the FFN itself, which `get_config` returns; "
            "for an attention layer, one for `key_dim` that does not depend on the "
            "number of heads. Or prune `keras_idea.as_functional(model)`, which has no "
            "such block. Or pass compact='off': a file of the masked model loads, "
            "and `keras_idea.compact` narrows what was loaded."
        )


def set_widths(
    model: keras.layers.Layer, narrowed: Iterable[tuple[int, int]]
) -> tuple[list[Change], list[keras.layers.Layer]]:
    """What was changed in the configs of blocks, and the blocks that cannot follow."""
    widths, changed = set(narrowed), list[Change]()
    own, stuck = list(_of_own_classes(model)), []
    calls = followed(model).called if own else {}
    for layer in own:
        parts = list(walk(layer))[1:]
        if is_backbone(layer):  # its config holds those of backbones in it alone
            parts = [part for part in parts if is_backbone(part)]
        for block in reversed(parts):
            # Narrowing has already updated the configs of Keras's own layers.
            follows_config = type(block).__module__.startswith("keras.")
            follows_config |= is_backbone(block) and bool(known_ffns(block))
            if (
                not follows_config
                and not isinstance(block, FFNLayer)
                and _shapes(block)
            ):
                _follow(block, widths, changed, calls)
        if not _follow(layer, widths, changed, calls):
            stuck.append(layer)
    return changed, stuck


def _follow(
    layer: keras.layers.Layer,
    widths: set[tuple[int, int]],
    changed: list[Change],
    calls: Mapping[keras.layers.Layer, Given],
) -> bool:
    """Sets the numbers in a layer's config, so that what it makes is the layer again.

    Returns whether it does; also True if no layer can be made from the config, because
    Keras then reports that itself when it saves or loads, at any width.
    """
    given = calls.get(layer)
    fits = _makes(layer, given)
    if fits is not False:
        return True
    changes = [
        (name, old, new)
        for old, new in sorted(widths)
        for name in layer.get_config()
        if config_number(layer, name) == old
    ]
    # The fewest that suffice: a number may have the same value by chance.
    sizes = range(1, min(len(changes), 3) + 1)
    trials = [itertools.combinations(changes, size) for size in sizes]
    for trial in itertools.chain.from_iterable(trials):
        for name, _, new in trial:
            set_config_number(layer, name, new)
        if _makes(layer, given):
            changed += [(layer, name, old) for name, old, _ in trial]
            return True
        for name, old, _ in trial:
            set_config_number(layer, name, old)
    return False


def _makes(layer: keras.layers.Layer, given: Given | None) -> bool | None:
    """Whether a layer's config makes one of the same shapes; None: it makes none.

    Where the new one cannot be called, what its constructor made is compared.
    """
    # Values cost most, and few layers look at theirs when they are built.
    for scope in (without_values, contextlib.nullcontext):
        made = _of_config(layer)
        if made is None:
            return None
        with scope():
            built = _built_like(made, layer, given)
        if built:
            return _shapes(made) == _shapes(layer)
    kinds = [[type(part) for part in walk(each)] for each in (made, layer)]
    return kinds[0] == kinds[1] and _sizes(made) == _sizes(layer)


def _of_own_classes(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """The outermost layers, made of a config of their own, that hold what is pruned."""
    layer = student_of(layer)
    if isinstance(layer, FFNLayer) or dense_of(layer) is layer or slides(layer):
        return
    if is_backbone(layer):
        if not known_ffns(layer):  # else its config is already updated
            yield layer
        return
    plain = type(layer) is Functional or type(layer) is keras.Sequential
    if plain or is_task(layer) or _is_of_tensors(layer):
        for sublayer in sublayers(layer):
            yield from _of_own_classes(sublayer)
    elif any(
        dense_of(part) is part or isinstance(part, _PRUNED) or slides(part)
        for part in walk(layer)
    ):
        yield layer
        if not has_call(layer):  # the models in it are saved each by itself
            for sublayer in sublayers(layer):
                yield from _of_own_classes(sublayer)


def _is_of_tensors(layer: keras.layers.Layer) -> bool:
    """Whether Keras saves a functional model of a class of its own by its graph."""
    return isinstance(layer, Functional) and made_of_tensors(type(layer))


def _shapes(layer: keras.layers.Layer) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in layer.variables]


def _sizes(layer: keras.layers.Layer) -> list[Any]:
    """What the constructors of the layers in a layer were told of their sizes."""
    names = ("units", "partial_output_shape", "hidden_dim", "filters", "groups")
    return [getattr(part, name, None) for part in walk(layer) for name in names]


def _warn_of_numbers(layer: keras.layers.Layer) -> None:
    """Warns if a layer made of the config computes with another number."""
    again = _of_config(layer)
    if again is None or not _built_like(again, layer, None):
        return
    operation = first_difference(calls_of(layer), calls_of(again))
    if operation is not None:
        warn_user(
            f"{type(layer).__name__} '{layer.name}' makes a number of its width when "
            f"it is constructed, and computes with it (in {operation}). A layer made "
            "of its config, as loading a saved one does, would compute with another. "
            "Give it that number as an argument of its own, which its config holds."
        )


def _of_config(layer: keras.layers.Layer) -> keras.layers.Layer | None:
    """A layer of the same config, not built; None where none can be made."""
    with _untouched(), contextlib.suppress(Exception):
        return type(layer).from_config(layer.get_config())
    return None


def _built_like(
    made: keras.layers.Layer, layer: keras.layers.Layer, given: Given | None
) -> bool:
    """Whether a layer could be built on what another was called on."""
    if not has_call(layer):  # nothing builds what does not begin with inputs
        return len(made.variables) == len(layer.variables)
    with _untouched(), contextlib.suppress(Exception):
        call_like(made, layer, given)
        return made.built
    return False


@contextlib.contextmanager
def _untouched() -> Iterator[None]:
    """A scope that leaves Python's random state, and says nothing."""
    state = random.getstate()  # Keras draws the seeds of Dropout and such from it
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        random.setstate(state)
