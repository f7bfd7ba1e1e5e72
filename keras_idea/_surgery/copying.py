"""Copies a model through its configs, with all that was set on its layers since.

Keras clones functional and `Sequential` models, and makes other layers of their
configs. What no config holds (a frozen layer, a changed rate) is carried over.
"""

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import keras
import numpy as np

from keras_idea._finding.find import find_groups
from keras_idea._graph.configs import warn_of_stuck
from keras_idea._groups.state import NeuronState, scope_at
from keras_idea._keras.channels import own_reshape
from keras_idea._keras.layers import (
    NOTED,
    copy_flags,
    first_argument,
    is_built,
    own_settings,
    own_weights,
    replace_class,
    retrack_parameters,
    sublayers,
    walk,
)
from keras_idea._keras.models import Functional, made_of_tensors, trusted_configs
from keras_idea._keras.variables import copy_training, without_values
from keras_idea._layers import Prunable
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import is_backbone, is_preprocessor, is_task
from keras_idea.hub.rebuild import rebuild_backbone, rebuild_task

#: Pairs of a model's variables and those of its copy.
Copies: TypeAlias = list[tuple[keras.Variable, keras.Variable]]


def copied(model: keras.layers.Layer) -> tuple[keras.layers.Layer, Copies]:
    """Copies a built model or layer with its values; also returns pairs of variables.

    The copy is not compiled. Its prunable FFNs are plain ones, as wide as before.
    """
    copy = _Maker().of(model)
    if not is_built(copy):
        # A model without `build` is called, and by itself that opens no scope.
        called = type(model).build is keras.Model.build
        path = model.path or model.name
        with scope_at(path if called else path.rpartition("/")[0]):
            copy.build_from_config(model.get_build_config() or {})
        copy.built = True  # as Keras's own loading does
    pairs = list(_pairs(model, copy))
    for _, new in pairs:
        if isinstance(new, Prunable):
            replace_class(new, new.plain_class, "state")
    if any(_shapes(old) != _shapes(new) for old, new in pairs):
        # It is narrower than its config says.
        cut = [
            (twin, np.broadcast_to(np.arange(ffn.hidden_dim), ffn.units_shape))
            for ffn, twin in zip(find_groups(model), find_groups(copy), strict=False)
            if ffn.hidden_dim < twin.hidden_dim
        ]
        warn_of_stuck(narrow_whole(copy, cut))
    carry_settings(pairs, pairs)
    copies = [each for pair in pairs for each in variables_of(model, *pair)]
    copy_values(copies)
    for old, new in pairs:
        if new is not old and hasattr(new, "finalize_state"):  # Normalization
            new.finalize_state()
    retrack_parameters(walk(copy))
    return copy, copies


def rebuilt(
    model: keras.Model, overrides: Mapping[str, Any], gone: Sequence[Any] = ()
) -> keras.Model:
    """Makes a model of another config or without some layers; its values are not set.

    `overrides` are of the config of a KerasHub backbone, a task's too. Layers that are
    `gone` return what they are given; a KerasHub config must leave them out.
    """
    copy = _Maker(gone, overrides).of(model)
    pairs = plain = list(_pairs(model, copy, gone))
    if is_task(model) or is_backbone(model):
        with without_values():  # an optimizer would have some
            plain = list(_pairs(model, _Maker(compile=False).of(model)))
    carry_settings(pairs, plain)
    return copy


def carry_settings(
    pairs: Sequence[tuple[Any, Any]], as_made: Sequence[tuple[Any, Any]]
) -> None:
    """Sets on copies what was set on their layers after they were made.

    `as_made` are pairs of the layers and those that their configs make.
    """
    made = {id(old): own_settings(new) for old, new in as_made}
    for old, new in pairs:
        copy_flags(old, new)
        noted, others = getattr(old, NOTED, None), getattr(new, NOTED, None)
        if noted is not None and others is not None:
            others.config = dict(noted.config)  # of a model, Keras notes the defaults
        before = made[id(old)]
        vars(new).update(
            (name, value)
            for name, value in own_settings(old).items()
            if name in before and before[name] != value
        )


class _Maker:
    """Makes layers like those of a model, each once.

    Layers that are `gone` return what they are given. `overrides` are of the config of
    a KerasHub backbone, `arguments` of its task.
    """

    def __init__(
        self,
        gone: Sequence[Any] = (),
        overrides: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        self._gone, self._skipped = gone, set(map(id, gone))
        self._overrides, self._arguments = overrides, arguments
        self._made: dict[int, Any] = {}

    def of(self, layer: Any) -> Any:
        """The copy of a layer, or of an operation in a functional graph."""
        if id(layer) in self._skipped:
            return layer
        if hasattr(layer, "adapt") and not layer.weights:
            return layer  # a table of words, which no config holds
        if id(layer) not in self._made:
            self._made[id(layer)] = self._new(layer)
        return self._made[id(layer)]

    def _new(self, layer: Any) -> Any:
        if not isinstance(layer, keras.layers.Layer):
            return own_reshape(layer)
        if is_backbone(layer) or is_task(layer):
            if is_task(layer):
                made = rebuild_task(layer, self.of(layer.backbone), **self._arguments)
            else:
                made = rebuild_backbone(layer, self._overrides)
            # A graph around it may use its layers too, as embeddings are.
            pairs = _pairs(layer, made, self._gone)
            self._made.update((id(old), new) for old, new in pairs)
            return made
        cls = type(layer)
        if cls.__init__ is keras.Sequential.__init__:
            held = [part for part in sublayers(layer) if id(part) not in self._skipped]
            return cls(list(map(self.of, held)), name=layer.name)
        if isinstance(layer, Functional) and made_of_tensors(cls):
            # Not `layer` itself, whose losses Keras would look for in a config.
            view = keras.Model(layer.input, layer.output, name=layer.name)
            clone = keras.models.clone_model(
                view, clone_function=self.of, call_function=self._call
            )
            if cls is Functional:
                return clone
            return cls(clone.input, clone.output, name=layer.name)
        made = of_config(layer)
        for old, new in zip(walk(layer), walk(made), strict=False):
            if _plain_class(old) is not _plain_class(new):
                break  # one of them is made when the layer is built
            new.name = old.name
        if isinstance(layer, Prunable) and layer.built:
            with scope_at(layer.path.rpartition("/")[0]):
                made.build_from_config(layer.get_build_config())
        return made

    def _call(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        if id(layer) in self._skipped:
            return first_argument(layer.call, args, kwargs)
        held = keras.tree.flatten([args, kwargs])
        if any(isinstance(leaf, keras.Variable) for leaf in held):
            _refuse(layer, "its graph holds a variable: compute with it in a layer")
        return layer(*args, **kwargs)


def of_config(layer: Any, name: str | None = None) -> Any:
    """Returns a layer of the same class and config, not built."""
    cls, raised = type(layer), []

    def with_functions(config: dict[str, Any]) -> dict[str, Any]:
        held = {name: getattr(layer, name, None) for name in config}
        kinds = (keras.layers.Layer, keras.Variable, type)
        functions = {
            name: value
            for name, value in held.items()
            if callable(value) and not isinstance(value, kinds)
        }
        return config | functions

    def constructed(config: dict[str, Any]) -> Any:
        taken = inspect.signature(cls.__init__).parameters
        given = with_functions(config).items()
        made = cls(**{name: value for name, value in given if name in taken})
        made.name = config["name"]
        return made

    ways = (
        cls.from_config,
        lambda config: cls.from_config(with_functions(config)),  # no name finds them
        constructed,  # a constructor may not take what every layer's config holds
    )
    classes = {type(part).__name__: type(part) for part in walk(layer)}
    with keras.saving.custom_object_scope(classes), trusted_configs():
        for make in ways:
            try:
                return make(layer.get_config() | {"name": name or layer.name})
            except Exception as error:
                raised.append(error)
    why = what_was_raised(raised[0])
    _refuse(layer, f"its config makes no layer ({why})", raised[0])


def _pairs(
    model: Any, copy: Any, gone: Sequence[Any] = ()
) -> Iterator[tuple[Any, Any]]:
    """The layers of a model and of its copy; refuses a copy of others."""
    layers = itertools.zip_longest(_computing(model, gone), _computing(copy, ()))
    for old, new in layers:
        if _plain_class(old) is not _plain_class(new):
            other = old if old is not None else new
            _refuse(
                model,
                f"a model of its config differs in layer '{other.name}' "
                f"({type(other).__name__})",
            )
        yield old, new


def _plain_class(layer: Any) -> type:
    """Of a prunable FFN the plain class, which a constructor may make prunable."""
    return layer.plain_class if isinstance(layer, Prunable) else type(layer)


def _computing(model: Any, gone: Sequence[Any]) -> Iterator[Any]:
    """The layers of a model, without preprocessors, inputs and states of pruning."""
    kinds = (NeuronState, keras.layers.InputLayer)
    others = [
        layer
        for layer in walk(model)
        if isinstance(layer, kinds) or is_preprocessor(layer)
    ]
    return walk(model, [*gone, *others, getattr(model, "preprocessor", None)])


def variables_of(model: Any, old: Any, new: Any) -> Copies:
    """Returns the variables that a layer in a model holds itself, with its copy's."""
    (weights, seeds), (others, drawn) = own_weights(old), own_weights(new)
    if _shapes(old) != _shapes(new):
        _refuse(
            model,
            f"a model of its config has variables of the shapes {_shapes(new)} in "
            f"layer '{old.name}', not {_shapes(old)}",
        )
    pairs = list(zip(weights, others, strict=True))
    if len(seeds) == len(drawn):  # a Dropout whose rate is now 0 has none
        pairs += zip(seeds, drawn, strict=True)
    return pairs


def copy_values(pairs: Iterable[tuple[keras.Variable, keras.Variable]]) -> None:
    """Gives copies of variables the values, and the ways of training, of others."""
    for old, new in pairs:
        copy_training(old, new)
        new.assign(keras.ops.copy(old.value))  # jax donates the arrays of a train step


def _shapes(layer: Any) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in own_weights(layer)[0]]


def _refuse(layer: Any, why: str, cause: Exception | None = None) -> NoReturn:
    raise ArgumentError(
        f"{type(layer).__name__} '{layer.name}' cannot be copied: {why}. Give its "
        "class a `get_config` with all arguments of its constructor, or call "
        "`keras_idea.compact(model, in_place=True)`, which copies nothing."
    ) from cause
