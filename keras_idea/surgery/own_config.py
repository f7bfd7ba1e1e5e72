"""Layers of the user's own classes, whose config is to follow what is pruned in them.

A block that makes its layers of a number, such as `Block(ff_dim=48)`, says 48 for ever;
of a narrowed one Keras saves fewer neurons, and could not load them. Where an attribute
of the block equals that number, it is set to the new width, and proved: made again from
its config, the block must have the shapes that are there.
"""

import contextlib
import itertools
import random
import warnings
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import keras

from keras_idea.finding.find_heads import ATTENTION_LAYERS
from keras_idea.groups.dense import is_dense
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.ffn import known_ffns
from keras_idea.keras_private.layer_walk import has_call, sublayers, walk
from keras_idea.keras_private.layers import config_number, set_config_number
from keras_idea.keras_private.models import Functional
from keras_idea.keras_private.symbolic import call_like
from keras_idea.keras_private.user_warning import warn_user
from keras_idea.layers.plain_ffns import PlainFFN
from keras_idea.layers.prunable import Prunable
from keras_idea.surgery.same_numbers import calls_of, first_difference

_FFNS = (Prunable, PlainFFN)
_PRUNED = (*_FFNS, *ATTENTION_LAYERS)


#: A layer, the name of a number in its config, and the number that was there.
Change: TypeAlias = tuple[keras.layers.Layer, str, int]


def follow_widths(
    model: keras.layers.Layer, narrowed: Iterable[tuple[int, int]]
) -> None:
    """Has the configs of blocks say how wide their FFNs are now, or warns.

    `narrowed` are the FFN widths before and after, as pairs.
    """
    changed, stuck = set_widths(model, narrowed)
    for layer in {id(layer): layer for layer, _, _ in changed}.values():
        _warn_of_numbers(layer)
    for layer in stuck:
        warnings.warn(
            f"The config of {type(layer).__name__} '{layer.name}' makes layers of "
            "another width than it has now: a file of it, saved whole (.keras), "
            "cannot be loaded. Let its config follow: take the FFN as an argument "
            "and serialize it in `get_config`, as keras_idea.models.DecoderBlock "
            "does; of an attention layer take `key_dim` as an argument, which must "
            "not follow from the number of heads.",
            stacklevel=2,
        )


def set_widths(
    model: keras.layers.Layer, narrowed: Iterable[tuple[int, int]]
) -> tuple[list[Change], list[keras.layers.Layer]]:
    """What was changed in the configs of blocks, and the blocks that cannot follow."""
    widths, changed = set(narrowed), list[Change]()
    stuck = []
    for layer in _of_own_classes(model):
        # A config may hold those of blocks in it, a backbone's does not.
        parts = [] if is_backbone(layer) else list(walk(layer))[1:]
        for block in reversed(parts):
            # Keras's own layers were told when they were narrowed.
            told = type(block).__module__.startswith("keras.")
            if not told and not isinstance(block, _FFNS) and _shapes(block):
                _follow(block, widths, changed)
        made = _follow(layer, widths, changed)
        if made is not None and made != _shapes(layer):
            stuck.append(layer)
    return changed, stuck


def _follow(
    layer: keras.layers.Layer, widths: set[tuple[int, int]], changed: list[Change]
) -> list | None:
    """Sets the numbers in a layer's config; the shapes of a layer made of it.

    None: none can be made, of which Keras tells when it saves.
    """
    present, again = _shapes(layer), _made_again(layer)
    if again is None:
        return None
    made = _shapes(again)
    if made == present:
        return made
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
        again = _made_again(layer)
        if again is not None and _shapes(again) == present:
            changed += [(layer, name, old) for name, old, _ in trial]
            return present
        for name, old, _ in trial:
            set_config_number(layer, name, old)
    return made


def has_own_classes(model: keras.layers.Layer) -> bool:
    """Whether a model holds FFNs or heads in layers of the user's own classes."""
    return any(True for _ in _of_own_classes(model))


def _of_own_classes(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """The outermost layers, made of a config of their own, that hold what is pruned."""
    if isinstance(layer, _FFNS) or is_dense(layer):
        return
    if is_backbone(layer):
        if not known_ffns(layer):  # else it has been told
            yield layer
        return
    if isinstance(layer, (Functional, keras.Sequential)) or is_task(layer):
        for sublayer in sublayers(layer):
            yield from _of_own_classes(sublayer)
    elif any(is_dense(part) or isinstance(part, _PRUNED) for part in walk(layer)):
        yield layer
        if not has_call(layer):  # the models in it are saved each by itself
            for sublayer in sublayers(layer):
                yield from _of_own_classes(sublayer)


def _shapes(layer: keras.layers.Layer) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in layer.variables]


def _warn_of_numbers(layer: keras.layers.Layer) -> None:
    """Warns if a layer made of the config computes with another number."""
    again = _made_again(layer)
    if again is None:
        return
    operation = first_difference(calls_of(layer), calls_of(again))
    if operation is not None:
        warn_user(
            f"{type(layer).__name__} '{layer.name}' makes a number of its width when "
            f"it is constructed, and computes with it (in {operation}). A layer made "
            "of its config, as loading a saved one does, would compute with another. "
            "Give it that number as an argument of its own, which its config holds."
        )


def _made_again(layer: keras.layers.Layer) -> keras.layers.Layer | None:
    """A layer of the same config, built; None where none can be made."""
    state = random.getstate()  # Keras draws the seeds of Dropout and such from it
    try:
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            made = type(layer).from_config(layer.get_config())
            if not has_call(layer):  # nothing builds what does not begin with inputs
                same = len(made.variables) == len(layer.variables)
                return made if same else None
            call_like(made, layer)
            return made
        return None
    finally:
        random.setstate(state)
