"""What a layer holds: variables, sublayers, settings. Seen with Keras 3.15.1."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
from keras.src.backend.common.masking import get_keras_mask

from keras_idea._keras.models import Functional
from keras_idea.errors import ArgumentError

#: The attribute that says what a layer was built for.
BUILT = "_build_shapes_dict"
#: That of what a constructor was given, of a class without a `get_config` of its own.
NOTED = "_auto_config"


_KERNELS = (
    "_kernel depthwise_kernel kernel _embeddings embeddings position_embeddings"
).split()


def stored_kernel(layer: keras.layers.Layer) -> keras.Variable:
    """The variable behind a layer's (first) `kernel`, or its `embeddings`.

    These are computed, with LoRA and of a quantized layer.
    """
    names = (name for name in _KERNELS if hasattr(layer, name))
    held: keras.Variable = getattr(layer, next(names))
    return held


def mask_of(x: Any) -> Any:
    """Keras's mask of a tensor, or None."""
    return get_keras_mask(x)


def takes_training(layer: keras.layers.Layer) -> bool:
    """bool, whether a layer's `call` has an argument `training`."""
    return layer._call_has_training_arg


@contextlib.contextmanager
def without_remat(model: keras.layers.Layer) -> Iterator[None]:
    """A scope in which no layer of a model is rematerialized.

    `keras.RematScope` sets it when a layer is made, and nothing public changes it.
    """
    with contextlib.ExitStack() as changes:
        for layer in model._flatten_layers():
            changes.callback(setattr, layer, "_remat_mode", layer._remat_mode)
            layer._remat_mode = None
        yield


@contextlib.contextmanager
def computing_in_float32(model: keras.layers.Layer) -> Iterator[None]:
    """A scope in which layers of half precision compute in float32.

    Their variables stay; a call casts their values one by one. Seen with Keras 3.15.1.
    """
    with contextlib.ExitStack() as changes:
        for layer in model._flatten_layers():
            policy, half = layer._dtype_policy, ("float16", "bfloat16")
            if policy.compute_dtype in half and not policy.quantization_mode:
                wide = keras.DTypePolicy("float32")
                wide._variable_dtype = policy.variable_dtype
                changes.callback(setattr, layer, "_dtype_policy", policy)
                layer._dtype_policy = wide
        yield


def rematerialize(layer: keras.layers.Layer) -> None:
    """Has a layer that is made already computed again in the backward pass.

    As `keras.RematScope("list_of_layers")` has one that is made in it, which needs
    its name beforehand. That one's call fails on jax if it is told `training`, a bool
    which becomes a traced value, and on tensorflow if it is told anything by name:
    here only tensors are handed on, in their order.
    """

    def rematerialized_call(call: Callable, *_: Any, **__: Any) -> Callable:
        def call_again(*args: Any, **kwargs: Any) -> Any:
            traced = {name: v for name, v in kwargs.items() if _has_tensor(v)}
            fixed = {name: v for name, v in kwargs.items() if name not in traced}

            def in_order(*tensors: Any) -> Any:
                named = zip(traced, tensors[len(args) :], strict=True)
                return call(*tensors[: len(args)], **dict(named), **fixed)

            return keras.remat(in_order)(*args, *traced.values())

        return call_again

    with keras.RematScope("full"):
        layer._remat_mode = keras.layers.Identity()._remat_mode
    layer.rematerialized_call = rematerialized_call


def _has_tensor(value: Any) -> bool:
    return any(map(keras.ops.is_tensor, keras.tree.flatten(value)))


def retrack_parameters(layers: Iterable[keras.layers.Layer]) -> None:
    """Makes torch know the parameters that built layers have now.

    There each holds a dictionary of its parameters by path, made when it was built, and
    `zero_grad` would miss the new ones. Of variables with one path Keras has one alone:
    the gradients of the others would add up from step to step. Other backends have
    none.
    """
    if keras.backend.backend() == "torch":
        for layer in layers:
            layer._track_variables()
            known = layer._torch_params
            values = {id(parameter) for parameter in known.values()}
            for variable in layer.variables:
                if id(variable.value) not in values:
                    known[f"{variable.path}_{len(known)}"] = variable.value


def has_lost_parameters(model: keras.layers.Layer) -> bool:
    """Whether torch does not know all that a model trains: some have one path."""
    if keras.backend.backend() != "torch":
        return False
    known = {id(parameter) for parameter in model.parameters()}
    return any(id(v.value) not in known for v in model.trainable_variables)


def first_argument(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The first argument of a layer's call, though it was given by its name."""
    return next(iter(args or inspect.signature(call).bind(**kwargs).arguments.values()))


#: What a user can set on any layer after it is made.
_FLAGS = (
    *("_trainable", "_remat_mode", "rematerialized_call", "activity_regularizer"),
    *("_dtype_policy", "autocast", "supports_jit", "_supports_masking"),
)


def copy_flags(layer: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Sets on a copy what a user can set on any layer."""
    held = vars(layer)
    # Not by `setattr`: `trainable` would reach into sublayers.
    vars(copy).update({name: held[name] for name in _FLAGS if name in held})


def own_settings(layer: keras.layers.Layer) -> dict[str, Any]:
    """The numbers, strings and bools that a layer's class has set as attributes."""
    kinds = (keras.Sequential, Functional, keras.Model, keras.layers.Layer)
    framework = _framework_attributes(next(k for k in kinds if isinstance(layer, k)))
    return {
        name: value
        for name, value in vars(layer).items()
        if isinstance(value, (bool, int, float, str, type(None)))
        and name not in framework
    }


@functools.cache
def _framework_attributes(kind: type) -> frozenset[str]:
    """What Keras itself gives a layer of a kind, also by `compile` and `fit`."""
    # With names of their own, or those of layers made later would be others.
    if kind is Functional:
        inputs = keras.Input((1,), name="framework_input")
        outputs = keras.layers.Identity(name="framework_layer")(inputs)
        layer = keras.Model(inputs, outputs, name="framework")  # 3.13 needs a layer
    else:
        layer = kind(name="framework")
    later = {"optimizer", "stop_training", "generate_function", "_self_update_uid"}
    return frozenset(vars(layer)) | later


def own_weights(
    layer: keras.layers.Layer,
) -> tuple[list[keras.Variable], list[keras.Variable]]:
    """The variables that a layer holds itself, and the states of its generators."""
    weights = [*layer._trainable_variables, *layer._non_trainable_variables]
    return weights, [generator.state for generator in layer._seed_generators]


def replace_class(layer: keras.layers.Layer, cls: type, without: str) -> None:
    """Makes a built layer one of another class, which lacks one of its sublayers.

    Whatever holds the layer, the graph of a functional model too, continues to do so.
    """
    layer._tracker.untrack(getattr(layer, without))  # which `delattr` leaves there
    delattr(layer, without)
    layer.__class__ = cls


def unlocked(
    layer: keras.layers.Layer, change: Callable[..., Any], *arguments: Any
) -> None:
    """Calls `change(layer, *arguments)` where Keras would refuse new state."""
    locked = layer._tracker.locked
    layer._tracker.unlock()
    try:
        change(layer, *arguments)
    finally:
        if locked:
            layer._tracker.lock()


def renew_weight(
    layer: keras.layers.Layer, name: str, make: Callable[[], keras.Variable]
) -> None:
    """Gives a layer another variable in the place of one that does not train.

    `name` is the attribute; `make` adds the new one, by `layer.add_weight`.
    """
    held, old = layer._non_trainable_variables, getattr(layer, name)
    place = next(i for i, variable in enumerate(held) if variable is old)
    unlocked(layer, lambda layer: setattr(layer, name, make()))
    held[place] = held.pop()


# `Model.layers` has the outermost ones alone, and a layer that is no model has no list.
def sublayers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers that a layer holds itself, in the order in which it got them.

    `Sequential.layers` leaves out the input layer.
    """
    return layer._layers


def all_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A model and all layers in it, a teacher that is not pruned too."""
    return model._flatten_layers()


def walk(model: Any, without: Iterable[Any] = ()) -> Iterator[Any]:
    """All layers of a model that may be pruned, each once, itself first.

    `all_layers` goes into the teacher of a `keras.distillation.Distiller`, which is
    never pruned. `without`: layers to skip, with what only they hold.
    """
    if not isinstance(model, keras.layers.Layer):
        raise ArgumentError(
            f"`model` must be a Keras model or layer. Received: {type(model).__name__}."
        )
    return _walk(model, set(map(id, without)))


def student_of(model: Any) -> Any:
    """Returns the model that is pruned: a `Distiller`'s student, else the model."""
    distilled = isinstance(model, keras.distillation.Distiller)
    return model.student if distilled else model


def has_call(layer: keras.layers.Layer) -> bool:
    """Whether a layer can be called; a model that is only trained need have no `call`.

    Its `train_step` calls what it holds: an encoder and a decoder, for one.
    """
    none = keras.Model.call, keras.layers.Layer.call
    return getattr(layer.call, "__func__", None) not in none


def is_built(layer: keras.layers.Layer) -> bool:
    """Whether a layer has its variables, itself; of one without `call` they say so."""
    return layer.built or not has_call(layer)


def called_parts(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layer, if it can be called; else what it holds that can be."""
    if has_call(layer):
        return [layer]
    return [part for held in sublayers(layer) for part in called_parts(held)]


def _walk(layer: Any, seen: set[int]) -> Iterator[Any]:
    if id(layer) in seen:  # held by two others
        return
    seen.add(id(layer))
    yield layer
    student = student_of(layer)
    for sublayer in sublayers(layer) if student is layer else [student]:
        yield from _walk(sublayer, seen)
