"""Lets a model compute with only the first neurons of its FFNs, and slices them out.

In a scope, the layers of an FFN read a static slice of each weight in place of the
weight. Gradients come back as large as the weights, with zeros: optimizer, kernels and
files stay as they are, and after the scope nothing is left on the model.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import keras
import numpy as np

from keras_idea._elastic.widths import Width, check_width, neurons_at
from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import find_ffns
from keras_idea._graph.group import FFN
from keras_idea._groups.cut import Cut
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.layers import is_built, sublayers, walk
from keras_idea._keras.read_instead import (
    Change,
    as_they_are,
    changed,
    names_of,
    reads,
    regularized,
)
from keras_idea._surgery.compact import narrowed
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.hub.rebuild import check_plain

Model = TypeVar("Model", bound=keras.layers.Layer)

#: The cuts of a variable, each with the place of its FFN among all.
_Cuts = list[tuple[int, Cut]]


class FirstNeurons:
    """Lets a model compute with the first neurons of its FFNs.

    Args:
        model: keras.layers.Layer.
        ffns: list of `FFN`, those that were found in it.

    Example:
    >>> reading = FirstNeurons(model, ki.find_ffns(model))
    >>> with reading.at([2, 2]):  # neurons of each FFN
    ...     outputs = model(model.input)
    """

    def __init__(self, model: keras.layers.Layer, ffns: Sequence[FFN]) -> None:
        cuts_of: dict[int, _Cuts] = {}
        layers: dict[int, keras.layers.Layer] = {}
        for place, ffn in enumerate(ffns):
            for cut in ffn.held_cuts():
                cuts_of.setdefault(id(cut.variable), []).append((place, cut))
            for layer in ffn.layers:
                layers[id(layer)] = layer
        self._cuts, self._layers = list(cuts_of.values()), layers
        #: Layer's `id` -> (layer, attribute, cuts of the variable that it holds).
        self._held = {
            key: [
                (layer, name, cuts)
                for cuts in self._cuts
                for name in names_of(layer, cuts[0][1].variable)
            ]
            for key, layer in layers.items()
        }
        #: Whose `call` reads weights, and the layers that hold them.
        self._callers = [(layer, [key]) for key, layer in layers.items()]
        self._callers += _blocks_that_read(model, ffns)
        found = {id(cuts) for held in self._held.values() for *_, cuts in held}
        for cuts in self._cuts:
            if id(cuts) not in found:
                place, cut = cuts[0]
                raise ArgumentError(
                    f"No attribute of {ffns[place].name} holds '{cut.variable.path}', "
                    "so it cannot be narrower. Train a model of each width."
                )
        self._read: set[int] = set()
        self._full = tuple(ffn.hidden_dim for ffn in ffns)
        self._whole = as_they_are(self._made(self._full))
        self._changes = {self._full: self._whole}

    @contextlib.contextmanager
    def at(self, counts: Sequence[int]) -> Iterator[None]:
        """Opens a scope in which each FFN computes with its first `counts` neurons.

        The innermost of several scopes applies. With all neurons, nothing changes.
        """
        key = tuple(counts)
        if key not in self._changes:
            with changed(self._whole):  # it may be called in a scope
                self._changes[key] = self._made(key)
        with changed(self._changes[key]):
            yield

    def check_read(self) -> None:
        """Raises if a layer of the FFNs was not called in any narrow scope so far.

        Then other code reads its weights, and ignores the width.
        """
        unread = [x.path for key, x in self._layers.items() if key not in self._read]
        if unread:
            raise ArgumentError(
                f"{', '.join(unread)}: nothing calls the layer, and other code reads "
                "its weights. Train a model of each width."
            )

    def _made(self, counts: tuple[int, ...]) -> list[Change]:
        found: list[Change] = []
        for caller, holders in self._callers:
            values = [
                (layer, name, functools.partial(_first_of, cuts, counts))
                for holder in holders
                for layer, name, cuts in self._held[holder]
            ]
            note = functools.partial(self._read.update, holders)
            found += reads(caller, values, note)
        for cuts in self._cuts:
            part = functools.partial(_first_of, cuts, counts)
            found += regularized(cuts[0][1].variable, part)
        return found


def _blocks_that_read(
    model: keras.layers.Layer, ffns: Sequence[FFN]
) -> list[tuple[keras.layers.Layer, list[int]]]:
    """Returns layers that may read the weights of layers inside them, with their `id`s.

    They exist if a reader is not called: blocks of Gemma 4 multiply by its kernel.
    """
    layers = {id(layer) for ffn in ffns if not ffn.shown for layer in ffn.layers}
    blocks = [part for part in walk(model) if not isinstance(part, keras.Model)]
    found = [
        (part, [id(x) for x in sublayers(part) if id(x) in layers]) for part in blocks
    ]
    return [(part, inside) for part, inside in found if inside]


def _first_of(
    cuts: _Cuts, counts: tuple[int, ...], value: Tensor | None = None
) -> Tensor:
    """Returns the first neurons of a variable, which may hold those of two FFNs."""
    for place, cut in cuts:
        value = cut.first(counts[place], value)
    return value


def sliced(model: Model, width: Width) -> Model:
    """Returns a new, narrow model of the first neurons of each FFN.

    Use it for each width that an `ElasticCallback` has trained. The narrow model is a
    stock model of the same classes, and shares nothing with `model`. It equals
    `ki.compact` of the model with all other neurons set to zero.

    If the model is compiled, the new model is compiled too, and the optimizer's state
    is sliced in the same way. A KerasHub model is checked on a probe batch, and a model
    with code of your own on an example.

    Args:
        model: keras.Model. A built functional, Sequential or subclassed Keras model, or
            a KerasHub task or backbone. It is not changed.
        width: int >= 1, float in (0, 1) or dict. Neurons of each FFN; the share of them
            (rounded to the nearest, at least 1); or either by the names that
            `ki.find_ffns` shows. FFNs without a name keep all.

    Returns:
        A new model.

    Raises:
        ValueError: If `width` is out of range, if the model has no FFN whose neurons
            are found, or if `ki.compact` raises one.

    Example:
    >>> narrow = ki.sliced(model, 0.5)
    >>> [ffn.hidden_dim for ffn in ki.find_ffns(narrow)]
    [4, 4]
    """
    width = check_width("width", width)
    check_plain(model)
    ffns = find_ffns(model)
    if not ffns or not is_built(model):
        raise ArgumentError(
            f"Model '{model.name}' has no FFN whose neurons can be sliced, or is not "
            f"built. {why_nothing(model, NEURONS)}"
        )
    counts = neurons_at("width", width, ffns)
    of = {id(ffn.layer): n for ffn, n in zip(ffns, counts, strict=True)}

    def first(ffn: FFN) -> np.ndarray:
        stay = of[id(ffn.layer)] if ffn.kind == NEURONS else ffn.hidden_dim
        return np.broadcast_to(np.arange(stay), (*ffn.units_shape[:-1], stay))

    reading = FirstNeurons(model, ffns)
    return narrowed(model, "sliced()", first, reading.at(counts), compiled=True)
