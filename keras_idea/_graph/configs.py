"""Makes configs say what pruning leaves.

A KerasHub backbone, or a block such as `Block(ff_dim=48)`, is saved by the numbers that
its constructor takes. The numbers that make what pruning leaves are found by experiment
(`keras_idea._graph.experiment`). Then the layer gets the attributes that its
constructor would have set: it becomes what its config makes.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_idea._graph.experiment import (
    Made,
    Path,
    Search,
    name_of,
    sizes_of,
)
from keras_idea._graph.follow import followed
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import CHANNELS, KV_GROUPS
from keras_idea._keras.around import layers_around
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import has_call, student_of, sublayers, walk
from keras_idea._keras.models import Functional, made_of_tensors
from keras_idea._keras.variables import shaped
from keras_idea._layers.ffn import FFNLayer
from keras_idea._signals import held_back
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.hub.as_mistral import LLAMAS
from keras_idea.hub.families import check_family, is_backbone, is_task


class Stuck(NamedTuple):
    """A layer whose config cannot say what is wanted, and why."""

    layer: keras.layers.Layer
    why: str


def set_configs(
    model: keras.layers.Layer,
    variables: Iterable[keras.Variable],
    units: Iterable[tuple[int, int]] = (),
    undo: contextlib.ExitStack | None = None,
    hub_only: bool = False,
) -> list[Stuck]:
    """Sets the numbers in configs that make the shapes which variables have now.

    Args:
        model: keras.layers.Layer that holds them.
        variables: those that have another shape than before.
        units: how many units groups had, and have: what to try first.
        undo: ExitStack that puts all back when it is closed; None: it stays.
        hub_only: bool. Whether to leave out the configs of other classes.

    Returns:
        The layers whose configs cannot say it; they are unchanged.
    """
    changed, undo = set(map(id, variables)), undo or contextlib.ExitStack()
    todo = [h for h in _holders(model, changed) if is_backbone(h) or not hub_only]
    calls = {} if all(map(is_backbone, todo)) else followed(model).called
    stuck = []
    while todo:
        layer = todo.pop(0)
        search = Search(layer, calls.get(layer), changed, units)
        if not search.begun and not is_backbone(layer):
            # No file of it could be loaded at any width; its parts follow alone.
            todo += [h for part in sublayers(layer) for h in _holders(part, changed)]
        elif search.why:
            stuck.append(Stuck(layer, search.why))
        elif search.changes:
            with contextlib.ExitStack() as undone:
                if search.apply(undone):
                    undo.push(undone.pop_all())
                    continue
            names = " and ".join(map(name_of, search.changes))
            stuck.append(Stuck(layer, f"has a {names} that cannot be set"))
    return stuck


@held_back()  # because the model says for a moment that it is narrower
def check_configs(
    model: keras.layers.Layer, targets: Sequence[tuple[Any, int]], hub_only: bool
) -> None:
    """Rejects numbers of units that the config of a KerasHub backbone cannot say.

    Warns of other layers, and of what is around the model. Nothing changes.

    Args:
        model: keras.layers.Layer.
        targets: list of (`FFN`, units that it is to have).
        hub_only: bool. Whether to leave out the configs of other classes.
    """
    units = [(ffn.hidden_dim, count) for ffn, count in targets]
    held = [layer for ffn, _ in targets for layer in ffn.layers]
    for outer in (model, *layers_around(model, held)):
        with contextlib.ExitStack() as undo:
            narrow = [(ffn, np.arange(count)) for ffn, count in targets]
            variables = undo.enter_context(as_if(narrow))
            stuck = set_configs(outer, variables, units, undo, hub_only)
            inside = list(_holders(outer, set(map(id, variables))))
        for backbone in filter(is_backbone, inside):
            check_family(backbone)
        for layer, why in stuck:
            if outer is model and is_backbone(layer):
                raise ArgumentError(
                    f"The config of {type(layer).__name__} '{layer.name}' {why}. Once "
                    "narrow, it could be neither saved nor compacted. Keep what its "
                    "config can hold."
                )
        warn_of_stuck(stuck)


def why_not_held(model: keras.layers.Layer, groups: Sequence[FFN]) -> dict[int, str]:
    """Why the configs of KerasHub models in a model, or around it, hold no group.

    Asks each for twice as many units of all groups of a kind. No config has a number
    for each convolution, so it is not asked for channels.

    Returns:
        dict, `id` of a group -> the reason; configs hold the number of all others.
    """
    held = [layer for group in groups for layer in group.layers]
    every = [p for o in (model, *layers_around(model, held)) for p in walk(o)]
    reasons: dict[int, str] = {}
    for layer in [*filter(is_backbone, every), *filter(is_task, every)]:
        inside = set(map(id, layer.variables))
        backbone = layer.backbone if is_task(layer) else layer
        own = {
            id(group): variables
            for group in groups
            if inside & (variables := {id(cut.variable) for cut in group.held_cuts()})
        }
        for kind in dict.fromkeys(group.kind for group in groups if id(group) in own):
            asked = [g for g in groups if g.kind == kind and id(g) in own]
            why, said = _asked_for_twice(backbone, asked)
            for group in asked:
                if not own[id(group)] <= said:
                    reason = f"the config of {type(layer).__name__} {why}"
                    reasons.setdefault(id(group), reason)
    return reasons


def _asked_for_twice(
    backbone: keras.Model, groups: Sequence[FFN]
) -> tuple[str, set[int]]:
    """Why a config does not hold twice as many units, and what variables it does."""
    if groups[0].kind == CHANNELS:
        return (
            "does not hold its number, so no preset could; prune "
            "keras_idea.as_functional(model)"
        ), set()
    names = backbone.get_config()
    if groups[0].kind == KV_GROUPS and not any("head_dim" in name for name in names):
        llama = type(backbone).__name__ in LLAMAS
        cure = "; `keras_idea.hub.as_mistral` makes one that can" if llama else ""
        return f"cannot say how wide a head is{cure}", set()
    units = [(group.hidden_dim, 2 * group.hidden_dim) for group in groups]
    now = Made(sizes_of(backbone))  # which spares making it
    double = [(group, np.arange(2 * group.hidden_dim)) for group in groups]
    with as_if(double) as variables:
        changed = set(map(id, variables))
        search = Search(backbone, None, changed, units, now)
        if search.why:
            search = Search(backbone, None, changed, units)
    if not search.begun:  # `check_configs` says why
        return "", changed
    return search.why or "does not hold its number", search.held


def numbers_for(
    layer: keras.layers.Layer, groups: Sequence[FFN], units: int
) -> dict[Path, int]:
    """Finds the numbers in a layer's config that make so many units of groups.

    Args:
        layer: keras.layers.Layer, made of its config when it was constructed.
        groups: list of groups in it, all with the same number of units.
        units: int.

    Returns:
        What to set in the config, for `with_numbers`.

    Raises:
        ArgumentError: If no numbers do.
    """
    count, wanted = groups[0].hidden_dim, np.arange(units)
    with as_if([(group, wanted) for group in groups]) as variables:
        search = Search(layer, None, set(map(id, variables)), [(count, units)])
    if search.why:
        raise ArgumentError(f"The config of {type(layer).__name__} {search.why}.")
    return search.changes


def warn_of_stuck(stuck: Iterable[Stuck]) -> None:
    """Warns of layers that Keras saves narrow, and could not load so."""
    for layer, why in stuck:
        warn_user(
            f"The config of {type(layer).__name__} '{layer.name}' {why}. A file of the "
            "whole narrow model (.keras) could not be loaded. Give the layer an "
            "argument for its number of neurons, heads or channels, which `get_config` "
            "returns, or prune `keras_idea.as_functional(model)`."
        )


@contextlib.contextmanager
def as_if(
    narrow: Iterable[tuple[FFN, np.ndarray]], values: dict[int, Tensor] | None = None
) -> Iterator[list[keras.Variable]]:
    """A scope in which a model says that its groups have other numbers of units.

    The variables keep their values; those in `values`, by the `id` of a variable, are
    cut. Yields the variables whose shapes are others.
    """
    with contextlib.ExitStack() as scopes:
        variables = []
        for group, kept in narrow:
            count = kept.shape[-1]
            # Before the shapes, so that layers are told once those are as before.
            scopes.callback(group.tell)
            states = group.state.cuts() if group.holds_state else []
            # A cut moves the units of groups along the same axis that come after it.
            for cut in [*group.held_cuts(), *states]:
                variable, shape = cut.variable, cut.shape(count)
                if values is not None:
                    values[id(variable)] = cut.take(kept, values[id(variable)])
                if count <= cut.neurons:
                    scopes.callback(cut.narrow_labels(kept))
                scopes.enter_context(shaped(variable, shape))
                variables.append(variable)
            group.tell()
        yield variables


def _holders(layer: Any, changed: set[int]) -> Iterator[keras.layers.Layer]:
    """The outermost layers, made of a config of their own, that hold what changed.

    Keras's own layers follow their variables, and so do the FFNs of this package.
    """
    layer = student_of(layer)
    if isinstance(layer, FFNLayer) or changed.isdisjoint(map(id, layer.variables)):
        return
    theirs = type(layer).__module__
    by_parts = theirs.startswith("keras.") and ".applications." not in theirs
    by_parts |= is_task(layer)
    # Keras saves a functional model of a class of its own by its graph.
    by_parts |= isinstance(layer, Functional) and made_of_tensors(type(layer))
    if is_backbone(layer) or not by_parts:
        yield layer
    if not is_backbone(layer) and (by_parts or not has_call(layer)):
        for part in sublayers(layer):  # models without a call are saved each by itself
            yield from _holders(part, changed)
