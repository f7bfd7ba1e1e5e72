"""Finds the blocks of a model, ranks them, and removes some."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._keras.layers import (
    first_argument,
    own_settings,
    sublayers,
    walk,
)
from keras_idea._keras.models import Functional, calls_in, instead
from keras_idea._keras.variables import without_values
from keras_idea._surgery.copying import copy_values, rebuilt
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_function
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.rebuild import rebuild_backbone
from keras_idea.methods.calibration import Samples, captured
from keras_idea.methods.captures import Sums, layer_capture

# The argument of KerasHub's backbones for the number of blocks.
_DEPTH = "num_layers"


def owner_of(model: keras.Model) -> keras.Model:
    """Returns the model that holds the blocks: a KerasHub task's backbone, or it."""
    owner: keras.Model = model.backbone if is_task(model) else model
    return owner


def find_blocks(model: keras.Model) -> list[keras.layers.Layer]:
    """Finds the blocks of a model that can be removed, in its order.

    These are the one stack of a KerasHub model, or the layers of one class in a
    functional model or `Sequential` that hold others and keep their input's shape.
    """
    owner = owner_of(model)
    if is_backbone(owner):
        dense = (keras.layers.Dense, keras.layers.EinsumDense)
        blocks = [
            layer
            for layer in owner.layers
            if sublayers(layer) and any(isinstance(part, dense) for part in walk(layer))
        ]
        one_stack = len({type(block) for block in blocks}) == 1
        if one_stack and getattr(owner, _DEPTH, None) == len(blocks):
            return blocks
    elif isinstance(model, (Functional, keras.Sequential)):
        several = _skippable(model)
        most = Counter(type(layer) for layer in several).most_common(1)
        if most and most[0][1] > 1:
            return [layer for layer in several if type(layer) is most[0][0]]
    raise ArgumentError(
        f"`targets['blocks']` does not support '{model.name}', a "
        f"{type(owner).__name__}: blocks are those of a KerasHub model with one "
        "stack, or equal layers of a functional model that keep their input's shape."
    )


def patterns(model: keras.Model, depth: int, count: int) -> tuple[list, list]:
    """Returns the kind of each of `depth` blocks, and of each in a model of `count`.

    In some families the kind of a block follows from its place: in Gemma 2, every
    second block attends to a window only. Kinds can only be compared.
    """
    owner = owner_of(model)
    if not is_backbone(owner) or _by_block(owner, depth):
        return [0] * depth, [0] * count

    def kinds(count: int) -> list[Any]:
        with without_values():
            copy = rebuild_backbone(owner, {_DEPTH: count})
        # Not by its config: KerasHub's Llama block (0.32) fails to give one.
        return [
            [(type(part), own_settings(part)) for part in walk(block)]
            for block in find_blocks(copy)
        ]

    # Both of new models: layers that were loaded from a file differ from others.
    return kinds(depth), kinds(count)


def block_influence(
    model: keras.Model,
    blocks: Sequence[keras.layers.Layer],
    samples: Samples,
) -> np.ndarray:
    r"""Measures how far each block turns its input, from 0 to 2.

    $$\mathrm{BI}_l = 1 - \mathbb{E}\,\frac{x_l^\top x_{l+1}}
    {\lVert x_l \rVert \lVert x_{l+1} \rVert}$$

    Source: ShortGPT (arXiv 2403.03853).
    """
    found = captured(model, [layer_capture(b, _cosines) for b in blocks], samples)
    return np.array([1 - float(total) / max(n, 1.0) for total, n in found])


def _cosines(inputs: Tensor, outputs: Tensor, mask: Tensor | None) -> Sums:
    before, after = ops.cast(inputs, "float32"), ops.cast(outputs, "float32")
    sizes = ops.norm(before, axis=-1) * ops.norm(after, axis=-1)
    cosines = ops.sum(before * after, axis=-1) / ops.maximum(sizes, 1e-20)
    counts = ops.ones_like(cosines)
    if mask is not None:
        counts = ops.cast(ops.reshape(mask, ops.shape(cosines)), "float32")
    return ops.sum(cosines * counts), ops.sum(counts)


def take_out(model: keras.Model, kept: Sequence[int]) -> keras.Model:
    """Returns a new model of the same class with only some (ascending) blocks.

    Raises if it computes something else than the model does without the blocks.
    """
    owner, blocks = owner_of(model), find_blocks(model)
    gone = [block for place, block in enumerate(blocks) if place not in {*kept}]
    config: dict[str, Any] = {}
    if is_backbone(owner):
        lists = _by_block(owner, len(blocks))
        config = {name: [values[i] for i in kept] for name, values in lists.items()}
        config[_DEPTH] = len(kept)
    copy = rebuilt(model, config, gone)
    given_up = {id(variable) for block in gone for variable in block.variables}
    stay = [v for v in model.variables if id(v) not in given_up]
    copy_values(zip(stay, copy.variables, strict=True))
    with contextlib.ExitStack() as changes:
        for block in gone:  # returns what it is given
            passing = functools.partial(_first, block.call)
            changes.enter_context(instead(block, "call", passing))
        check_same_function(model, copy)
    return copy


def _first(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return first_argument(call, args, kwargs)


def _by_block(backbone: keras.Model, depth: int) -> dict[str, Any]:
    """Returns the entries of a config that have a value for each block."""
    config = backbone.get_config()
    listed = {k: v for k, v in config.items() if isinstance(v, (list, tuple))}
    return {name: values for name, values in listed.items() if len(values) == depth}


def _skippable(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns layers that hold others, are called once, and keep the input's shape."""
    calls = calls_in(model)
    times = Counter(id(layer) for layer, _, _ in calls)
    return [
        layer
        for layer, given, returned in calls
        if times[id(layer)] == len(returned) == 1
        and isinstance(layer, keras.layers.Layer)
        and sublayers(layer)
        and given[0].shape == returned[0].shape
    ]


def most_important(
    importance: np.ndarray, kinds: Sequence[Any], places: Sequence[Any]
) -> list[int]:
    """Returns the blocks of the greatest total importance that fit the places.

    A block fits a place of the same kind; the order of the blocks stays. Raises if an
    importance is not finite.

    Example:
    >>> most_important(np.array([1.0, 3.0, 0.5, 2.0]), "abab", "ab")
    [0, 1]
    """
    if not np.isfinite(importance).all():
        raise ArgumentError(
            "The importance of some blocks is NaN or infinite. Check the calibration "
            f"data and the weights. Received: {importance}."
        )
    # By the number of places that are taken: the greatest total, and its blocks.
    best: list[tuple[float, list[int]] | None] = [(0.0, []), *[None] * len(places)]
    for block, kind in enumerate(kinds):
        for place in reversed(range(len(places))):
            before, now = best[place], best[place + 1]
            if before is not None and kind == places[place]:
                total = before[0] + importance[block]
                if now is None or total > now[0]:
                    best[place + 1] = total, [*before[1], block]
    if best[-1] is None:
        raise ArgumentError(
            f"No {len(places)} of the {len(kinds)} blocks can stay: their kinds follow "
            "one another in a pattern that a smaller model does not have. Give another "
            "number."
        )
    return best[-1][1]
