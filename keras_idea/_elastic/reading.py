"""Lets a model compute with only the first neurons of its FFNs.

In a scope, the layers of an FFN read a static slice of each weight in place of the
weight. Gradients come back as large as the weights, with zeros: optimizer, kernels and
files stay as they are, and after the scope nothing is left on the model.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

import keras

from keras_idea._finding.find import FFN
from keras_idea._groups.cut import Cut
from keras_idea._keras.layers import sublayers, walk
from keras_idea._keras.read_instead import (
    Change,
    as_they_are,
    changed,
    names_of,
    reads,
    regularized,
)
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError

#: A cut of a variable, and the place of its FFN among all.
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
        self._ffns = ffns
        self._cuts: dict[int, _Cuts] = {}
        layers: dict[int, keras.layers.Layer] = {}
        for place, ffn in enumerate(ffns):
            for cut in ffn.held_cuts():
                self._cuts.setdefault(id(cut.variable), []).append((place, cut))
            for layer in (*ffn.layers, *getattr(ffn.weights, "between", ())):
                layers[id(layer)] = layer
        self._layers = layers
        self._held = {
            key: [
                (layer, name, cuts)
                for cuts in self._cuts.values()
                for name in names_of(layer, cuts[0][1].variable)
            ]
            for key, layer in layers.items()
        }
        #: Whose `call` reads weights, and of which layers.
        self._callers = [(layer, [key]) for key, layer in layers.items()]
        self._callers += _blocks_that_read(model, ffns)
        self._check_held()
        self._read: set[int] = set()
        self._changes: dict[tuple[int, ...], list[Change]] = {}
        whole = tuple(ffn.hidden_dim for ffn in ffns)
        self._whole = as_they_are(self._made(whole))

    @contextlib.contextmanager
    def at(self, counts: Sequence[int]) -> Iterator[None]:
        """A scope in which each FFN computes with its first `counts` neurons.

        The innermost of several scopes applies. With all neurons, nothing changes.
        """
        key = tuple(counts)
        if key not in self._changes:
            with changed(self._whole):  # it may be called in a scope
                whole = key == tuple(ffn.hidden_dim for ffn in self._ffns)
                self._changes[key] = self._whole if whole else self._made(key)
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

    def _check_held(self) -> None:
        places = [cuts for held in self._held.values() for *_, cuts in held]
        known = {id(cut.variable) for cuts in places for _, cut in cuts}
        for key, cuts in self._cuts.items():
            if key not in known:
                raise ArgumentError(
                    f"No attribute of {self._ffns[cuts[0][0]].name} holds "
                    f"'{cuts[0][1].variable.path}', so it cannot be narrower. Train a "
                    "model of each width."
                )

    def _made(self, counts: tuple[int, ...]) -> list[Change]:
        found: list[Change] = []
        for caller, holders in self._callers:
            values = [
                (layer, name, functools.partial(_first_of, cuts, counts))
                for holder in holders
                for layer, name, cuts in self._held[holder]
            ]
            found += reads(
                caller, values, functools.partial(self._read.update, holders)
            )
        for cuts in self._cuts.values():
            part = functools.partial(_first_of, cuts, counts)
            found += regularized(cuts[0][1].variable, part)
        return found


def _blocks_that_read(
    model: keras.layers.Layer, ffns: Sequence[FFN]
) -> list[tuple[keras.layers.Layer, list[int]]]:
    """Returns layers that may read the weights of layers inside them, with their `id`s.

    They exist where a reader is not called: blocks of Gemma 4 multiply by its kernel.
    """
    layers = {
        id(layer)
        for ffn in ffns
        if not getattr(ffn.weights, "calls_readers", True)
        for layer in ffn.layers
    }
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
