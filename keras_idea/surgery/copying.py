"""A model copied as it is, with plain, narrow FFNs in place of this package's own.

Functional and `Sequential` models are made again around copies of their layers, and
KerasHub's from their configs. Any other layer is copied as an object: its attributes
and variables, and those of whatever it holds. So the copy computes with the numbers
that the model has, and needs no config.
"""

import collections
import contextlib
import copy
import functools
import itertools
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.groups.state import scope_at
from keras_idea.hub.families import is_backbone, is_preprocessor, is_task
from keras_idea.hub.rebuild import rebuild_backbone, rebuild_task
from keras_idea.keras_private.bare_copy import (
    bare_copy,
    bare_graph,
    bare_sequence,
    give_setting,
    hand_on_flags,
    mirror_state,
    set_attribute,
    settings_of,
    variable_like,
)
from keras_idea.keras_private.layers import (
    first_argument,
    own_attributes,
    sublayers,
    walk,
)
from keras_idea.keras_private.models import Functional
from keras_idea.keras_private.variables import without_values
from keras_idea.layers.ffn import Prunable
from keras_idea.surgery.held_values import (
    attributes,
    holds_state,
    is_foreign_state,
    same_value,
)
from keras_idea.surgery.optimizer_state import optimizer_like

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)


class _NotCopied(Exception):
    """A value has state that Keras does not know."""


class Copier:
    """Copies layers and what they hold, each once, so that what is shared stays so.

    FFNs of stock layers are still wide in a copy, and what KerasHub's backbones hold
    has new values. `optimizers` are pairs of those that layers hold, and of copies
    without their state. `widths` has what a prunable FFN keeps, by its `id`; of others
    the active neurons. Layers that are `gone` return what they are given.
    """

    def __init__(
        self, widths: Mapping[int, int] | None = None, gone: Iterable[Any] = ()
    ) -> None:
        self._widths = widths or {}
        self._gone = {id(layer) for layer in gone}
        self.optimizers: list[tuple[keras.Optimizer, keras.Optimizer]] = []
        self._copies: dict[int, Any] = {}
        self._originals: list[Any] = []  # held, so that nothing new has their `id`s

    def layer(self, layer: Any) -> Any:
        """The copy of a built layer, or of an operation in a functional graph."""
        if id(layer) not in self._copies:
            made = self._remember(layer, self._made(layer))
            if isinstance(layer, keras.layers.Layer):
                hand_on_flags(layer, made)
        return self._copies[id(layer)]

    def value(self, value: Any) -> Any:
        """The copy of what a layer holds; the value itself where it holds no state."""
        if id(value) in self._copies:
            return self._copies[id(value)]
        if id(value) in self._gone:
            return None
        if isinstance(value, keras.layers.Layer):
            return self.layer(value)
        if isinstance(value, keras.Variable):
            return self._remember(value, variable_like(value))
        if isinstance(value, keras.metrics.Metric):
            return self._remember(value, fresh_metric(value))
        if isinstance(value, keras.optimizers.Optimizer):
            self.optimizers.append((value, optimizer_like(value)))
            return self._remember(*self.optimizers[-1])
        if isinstance(value, _CONTAINERS):
            plain = type(value) in _CONTAINERS or hasattr(value, "tracker")
            return self._container(value) if plain or holds_state(value) else value
        return self._object(value) if holds_state(value) else value

    def _remember(self, original: Any, made: Any) -> Any:
        self._originals.append(original)
        self._copies[id(original)] = made
        return made

    def _made(self, layer: Any) -> Any:
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation of a functional graph: it has no state
        if isinstance(layer, Prunable):
            return _plain(layer, self._widths.get(id(layer), layer.width))
        if isinstance(layer, keras.layers.InputLayer):
            return type(layer).from_config(layer.get_config())
        if is_backbone(layer):
            return self.carry_over(layer, rebuild_backbone(layer))
        if is_task(layer):
            made = rebuild_task(layer, self.layer(layer.backbone))
            return self.carry_over(layer, made)
        if isinstance(layer, keras.Sequential):
            layers = list(map(self.layer, self._staying(sublayers(layer))))
            return self._with_attributes(layer, bare_sequence(layer, layers))
        if isinstance(layer, Functional):
            # Not `layer` itself: clone_model would compile its copy from a config,
            # which fails for a loss that is a plain function.
            view = keras.Model(layer.input, layer.output, name=layer.name)
            graph = keras.models.clone_model(
                view, clone_function=self._of_graph, call_function=self._call
            )
            if type(layer) is not Functional:
                graph = bare_graph(layer, graph)
            return self._with_attributes(layer, graph)
        made = self._with_attributes(layer, bare_copy(layer))
        mirror_state(layer, made, self.value)
        return made

    def carry_over(
        self, model: Any, made: Any, plain: Any = None, gone: Sequence[Any] = ()
    ) -> Any:
        """Gives a model what was set on the layers of the one that it is a copy of.

        A config says only how layers are made. `plain` is what it makes as it is; None:
        the copy. Layers that are `gone` are not in the copy.
        """
        pairs = _pairs(model, plain or made)
        as_made = {id(old): new for old, new in pairs}
        pairs = _pairs(model, made, gone) if plain else pairs
        for pair in pairs:  # a layer may be used outside too, as embeddings are
            self._remember(*pair)
        for old, new in pairs:
            found = settings_of(as_made[id(old)])
            for name, value in settings_of(old).items():
                if name not in found or not same_value(value, found[name]):
                    with _named(old, name):
                        give_setting(new, name, self.value(value))
        return made

    def _with_attributes(self, layer: keras.layers.Layer, made: Any) -> Any:
        self._remember(layer, made)  # what it holds may refer to it
        for name, value in own_attributes(layer).items():
            with _named(layer, name):
                set_attribute(made, name, self.value(value))
        return made

    def _staying(self, parts: Iterable[Any]) -> list[Any]:
        return [part for part in parts if id(part) not in self._gone]

    def _of_graph(self, layer: Any) -> Any:
        return layer if id(layer) in self._gone else self.layer(layer)

    def _call(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        if id(layer) in self._gone:
            return first_argument(layer.call, args, kwargs)
        return layer(*args, **kwargs)

    def _container(self, value: Any) -> Any:
        if isinstance(value, tuple):
            # A named one's; a plain one has no `_make`.
            make = getattr(value, "_make", None)
            parts = value if make else self._staying(value)
            return (make or tuple)(map(self.value, parts))
        if isinstance(value, frozenset):
            return frozenset(map(self.value, self._staying(value)))
        made = self._remember(value, _shell_of(value))
        if isinstance(value, dict):
            made.update({self.value(key): self.value(value[key]) for key in value})
        else:
            add = made.update if isinstance(value, set) else made.extend
            add([self.value(part) for part in self._staying(value)])
        own = type(value) not in _CONTAINERS and not hasattr(value, "tracker")
        return self._with_parts(value, made) if own else made

    def _with_parts(self, value: Any, made: Any) -> Any:
        """Has the copy of an object hold copies."""
        for name, part in attributes(value).items():
            object.__setattr__(made, name, self.value(part))
        return made

    def _object(self, value: Any) -> Any:
        """The copy of a plain Python object, or function, that holds layers."""
        if is_foreign_state(value):
            raise _NotCopied
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, self.value(value.__self__))
        if isinstance(value, functools.partial):
            function, named = self.value(value.func), self.value(value.keywords)
            return functools.partial(function, *self.value(value.args), **named)
        if isinstance(value, weakref.ref):
            return weakref.ref(self.value(value()))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        made = copy.copy(value)
        if made is value or not attributes(value):  # what it holds is out of reach
            raise _NotCopied
        return self._with_parts(value, self._remember(value, made))

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        code, scope = function.__code__, function.__globals__
        made = types.FunctionType(code, scope, function.__name__, None, cells)
        self._remember(function, made)  # it may refer to itself
        for cell, old in zip(cells, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # one that is not filled yet
                cell.cell_contents = self.value(old.cell_contents)
        made.__defaults__ = self.value(function.__defaults__)
        made.__kwdefaults__ = self.value(function.__kwdefaults__)
        made.__dict__.update(self.value(function.__dict__))
        return made


def rebuilt(model: Any, overrides: dict[str, Any], gone: Sequence[Any] = ()) -> Any:
    """A KerasHub task or backbone of another config, without values.

    All else that was set on its layers is as it was; those that are `gone` are not in
    it.
    """
    backbone = model.backbone if is_task(model) else model

    def of_config(overrides: dict[str, Any], **arguments: Any) -> Any:
        made = rebuild_backbone(backbone, overrides)
        return rebuild_task(model, made, **arguments) if is_task(model) else made

    with without_values():
        plain = of_config({}, compile=False)  # an optimizer would have values
    return Copier().carry_over(model, of_config(overrides), plain, gone)


def _pairs(model: Any, copy: Any, gone: Sequence[Any] = ()) -> list[tuple[Any, Any]]:
    """The layers of a model and of its copy; refuses a copy of others."""
    pairs = list(itertools.zip_longest(*map(_computing, (model, copy), (gone, ()))))
    others = [old or new for old, new in pairs if type(old) is not type(new)]
    if others:
        other = others[0]
        raise ArgumentError(
            f"'{model.name}' and a model of its config differ in layer '{other.name}' "
            f"({type(other).__name__}), so no copy can be made. Take the layer out, or "
            "narrow the model in `fit`, with compact='end', which copies nothing."
        )
    return pairs


def _computing(model: Any, gone: Sequence[Any]) -> Iterator[Any]:
    """The layers of a model, without preprocessors, which a copy shares."""
    held = [layer for layer in walk(model) if is_preprocessor(layer)]
    return walk(model, [*gone, *held, getattr(model, "preprocessor", None)])


def fresh_metric(metric: Any) -> Any:
    """A metric of the same config with fresh state; other values as they are."""
    if not isinstance(metric, keras.metrics.Metric):
        return metric
    try:
        return type(metric).from_config(metric.get_config())
    except Exception as error:
        raise ArgumentError(
            f"Metric '{metric.name}' cannot be made again from its config, as "
            "compact() must do to compile the narrow model. Pass a plain function as "
            "metric, give the class a `get_config`, or compile without it first. "
            f"Keras said: {error}"
        ) from error


def _shell_of(value: Any) -> Any:
    """An empty container of the same kind."""
    if hasattr(value, "tracker"):  # Keras's own, which track for the original
        kinds = (collections.OrderedDict, dict, list, set)
        return next(kind for kind in kinds if isinstance(value, kind))()
    shell = copy.copy(value)
    shell.clear()
    return shell


def _plain(layer: Prunable, width: int) -> keras.layers.Layer:
    plain = layer.plain(width)
    if layer.built:
        holder = layer.path.rpartition("/")[0]
        with scope_at(holder) if holder else contextlib.nullcontext():
            plain.build_from_config(layer.get_build_config())
    return plain


@contextlib.contextmanager
def _named(layer: keras.layers.Layer, attribute: str) -> Iterator[None]:
    """A scope in which what cannot be copied is named in an error."""
    try:
        yield
    except _NotCopied as error:
        held = type(getattr(layer, attribute, None)).__name__
        raise ArgumentError(
            f"{type(layer).__name__} '{layer.name}' cannot be copied, as compact() "
            f"must do: its attribute '{attribute}' ({held}) holds state that Keras "
            "does not know. Let Keras hold it (`add_weight`, or layers), or narrow the "
            "model in `fit`, with compact='end', which copies nothing."
        ) from error
