"""From a masked model to a new, physically narrow one."""

import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, overload

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.rebuild import rebuild_backbone, rebuild_task
from keras_idea.hub.same_function import check_same_function
from keras_idea.keras_private.layer_walk import student_of, sublayers, walk
from keras_idea.keras_private.layers import own_attributes
from keras_idea.keras_private.models import (
    Functional,
    compile_arguments,
    made_of_tensors,
)
from keras_idea.keras_private.unlocked import put_in_place
from keras_idea.keras_private.user_warning import warn_user
from keras_idea.layers.plain_ffns import PlainFFN
from keras_idea.layers.prunable import Prunable
from keras_idea.surgery.condition import check_at_rest
from keras_idea.surgery.first_width import hand_on_first_widths
from keras_idea.surgery.narrow_in_place import narrow_copy
from keras_idea.surgery.one_number import check_one_count, check_one_width
from keras_idea.surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    copy_optimizer,
    optimizer_like,
)
from keras_idea.surgery.own_config import follow_widths, has_own_classes
from keras_idea.surgery.pairing import Pair, cut_to, paired_variables
from keras_idea.surgery.proof import prove
from keras_idea.surgery.same_numbers import calls_of, first_difference
from keras_idea.surgery.width_in_code import check_width_in_code

Model = TypeVar("Model", bound=keras.layers.Layer)


@overload
def compact(model: Prunable) -> PlainFFN: ...
@overload
def compact(model: Model) -> Model: ...
def compact(model: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a new, narrow model that computes what the masked model computes.

    Use it for a model that is masked but still wide, and to replace the prunable layers
    of this package with plain ones. Every `PrunableGatedFFN` becomes a `GatedFFN` and
    every `PrunableFFN` an `UngatedFFN`, with the neurons that are active now. Other
    layers keep their class. FFNs of Dense layers keep the neurons that have a weight
    other than zero, and attention layers keep such heads. A KerasHub model is checked
    on a probe batch.

    If the model is compiled, the new model is compiled too, and the optimizer's state
    is sliced in the same way. Its next train step equals the next train step of the old
    model.

    Args:
        model: keras.layers.Layer. A built functional, Sequential or subclassed Keras
            model, a KerasHub task or backbone, or an FFN of this package. It is not
            changed. A subclassed model holds its FFNs as attributes, or in lists,
            tuples or dicts of them. A subclassed model or layer that holds FFNs needs a
            `get_config` that its constructor understands, as for saving.

    Returns:
        A new model or layer. `compact(compact(model))` equals `compact(model)`.

    Raises:
        ValueError: If `model` is not a Keras layer, is not built, is a `Distiller`, or
            is being measured by a method. If a KerasHub model in it has LoRA, is
            quantized, or would need widths that its config cannot hold. If a class
            cannot be rebuilt from its config, or if the copy has other variables or
            computes something else. If the optimizer's state cannot be carried over.

    Example:
    >>> prune = ki.IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = model.fit(data, callbacks=[prune], verbose=0)
    >>> narrow = compact(model)
    >>> narrow.save("narrow.keras")
    """
    narrow, pairs = narrowed(model, "compact()")
    hand_on_first_widths(model, narrow, pairs)
    if getattr(model, "compiled", False):
        trained = {id(variable) for variable in narrow.trainable_variables}
        compile_like(narrow, model, [p for p in pairs if id(p[1]) in trained])
    _NARROW.add(narrow)
    return narrow


def narrowed(
    model: keras.layers.Layer, caller: str
) -> tuple[keras.layers.Layer, list[Pair]]:
    """As `compact`, of any layer, but not compiled; with the variables of the two.

    `caller` is what errors call the function that needs it.
    """
    ffns = check_at_rest(model, caller)
    if student_of(model) is not model:
        raise ArgumentError(
            f"'{model.name}' is a Distiller, whose teacher is not pruned. Compact what "
            "it has trained: compact(distiller.student)."
        )
    _warn_of_nothing(model, ffns)
    if not model.built:
        raise ArgumentError(
            f"Model '{model.name}' is not built, so there is nothing to copy. Call "
            "it on data, or `model.build(input_shape)`, first."
        )
    optimizer = built_optimizer(model)
    if optimizer is not None:
        check_carriable(optimizer, [cut for ffn in ffns for cut in ffn.cuts()])
    kept = [(ffn, ffn.kept_neurons()) for ffn in ffns]
    for backbone in [layer for layer in walk(model) if is_backbone(layer)]:
        widths = {id(ffn.layer): stay.shape[-1] for ffn, stay in kept}
        check_one_width(backbone, widths)
        check_one_count(backbone, widths)
    cut = [ffn for ffn, stay in kept if stay.shape[-1] < ffn.hidden_dim]
    check_width_in_code(model, cut)
    prove(model, [ffn for ffn in cut if ffn.kind == "kv_groups"])
    narrow = rebuild(model, {})
    if not narrow.built:
        narrow.build_from_config(model.get_build_config())
        narrow.built = True  # as Keras's own loading does
    if model.variables and not narrow.variables:
        raise ArgumentError(
            f"The copy of model '{model.name}' could not be built from the model's "
            "`get_build_config()`. Define `build` (or `build_from_config`), as loading "
            "a saved one needs too, or let `call` take one (nested) input."
        )
    if has_own_classes(model):
        calls = calls_of(model)
        operation = first_difference(calls, calls_of(narrow))
        if operation is not None and not first_difference(calls, calls_of(model)):
            raise ArgumentError(
                f"The copy of model '{model.name}' computes with another number than "
                f"the model does (in {operation}): its config does not hold what the "
                "model has now. Give the layer that number as an argument, which its "
                "config holds."
            )
    narrow_copy(model, narrow, kept)
    pairs = paired_variables(model, narrow, kept)
    for old, new, stays in pairs:
        new.trainable = old.trainable
        new.assign(cut_to(old, stays))
    check_same_function(model, narrow)
    follow_widths(narrow, {(ffn.hidden_dim, stay.shape[-1]) for ffn, stay in kept})
    return narrow, pairs


# What `compact` has returned: to compact it again is no mistake.
_NARROW: weakref.WeakSet[keras.layers.Layer] = weakref.WeakSet()


def _warn_of_nothing(model: keras.layers.Layer, ffns: list[FFN]) -> None:
    plain = any(isinstance(layer, PlainFFN) for layer in walk(model))
    if not ffns and not plain and model not in _NARROW:
        warn_user(
            f"Model '{model.name}' holds no FFN that can be pruned, so compact() "
            "returns a copy of the same shape. `keras_idea.explain(model)` says why."
        )


# By the id of a layer its copy, so that a layer used twice stays one.
Copies: TypeAlias = dict[int, keras.layers.Layer]
# What a parent's copy is given whole; of other layers only the FFNs are replaced.
_REBUILT_WHOLE = (Prunable, PlainFFN, keras.Sequential, Functional)


def rebuild(layer: keras.layers.Layer, memo: Copies) -> keras.layers.Layer:
    """A new layer of the same config, of its FFNs the prunable ones plain and narrow.

    It may not be built yet. FFNs of stock layers are still wide in it.
    """
    if id(layer) not in memo:
        memo[id(layer)] = _rebuild_once(layer, memo)
    return memo[id(layer)]


def _rebuild_once(layer: keras.layers.Layer, memo: Copies) -> keras.layers.Layer:
    if isinstance(layer, Prunable):
        return layer.plain(layer.width)
    if not isinstance(layer, keras.layers.Layer):
        return layer  # an operation of a functional graph: it has no state

    def clone(sublayer: keras.layers.Layer) -> keras.layers.Layer:
        return rebuild(sublayer, memo)

    if is_backbone(layer):
        copy = rebuild_backbone(layer)
        # A layer of it may be used outside of it too, as embeddings are.
        memo.update(zip(map(id, walk(layer)), walk(copy), strict=True))
        return copy
    if is_task(layer):
        return rebuild_task(layer, clone(layer.backbone))
    if isinstance(layer, keras.Sequential):
        layers = [clone(sublayer) for sublayer in sublayers(layer)]
        return keras.Sequential(layers, name=layer.name, trainable=layer.trainable)
    if type(layer) is Functional:
        # Not `layer` itself: clone_model would compile its copy from a config,
        # which fails for a loss that is a plain function.
        view = keras.Model(layer.input, layer.output, name=layer.name)
        return keras.models.clone_model(view, clone_function=clone)
    if isinstance(layer, Functional):
        if not made_of_tensors(type(layer)):
            raise ArgumentError(
                f"{type(layer).__name__} '{layer.name}' is a functional model of a "
                "class whose constructor does not take inputs and outputs alone, so "
                "that compact() cannot make it again around narrower layers. Compact "
                "the plain model instead: "
                "compact(keras.Model(model.input, model.output))."
            )
        plain = _rebuild_once(keras.Model(layer.input, layer.output), memo)
        return type(layer)(plain.input, plain.output, name=layer.name)
    try:
        copy = type(layer).from_config(layer.get_config())
    except Exception as error:
        raise ArgumentError(
            f"{type(layer).__name__} '{layer.name}' cannot be made again from its "
            "config, as compact() must do (so must saving and loading). Give the "
            "class a `get_config` whose result its constructor takes. "
            f"The constructor said: {error}"
        ) from error
    _replace_ffns(layer, copy, memo)
    return copy


def _replace_ffns(
    original: keras.layers.Layer, copy: keras.layers.Layer, memo: Copies
) -> None:
    """Replaces the FFNs below `copy` by the plain, narrow ones of `original`."""
    replaceable = own_attributes(copy)
    for name, value in own_attributes(original).items():
        if name in replaceable:
            replacement = _replacement(value, replaceable[name], copy, memo)
            if replacement is not replaceable[name]:
                setattr(copy, name, replacement)


def _replacement(old: Any, new: Any, owner: keras.layers.Layer, memo: Copies) -> Any:
    """What must stand in the copy where `new` stands; often `new` itself."""
    if isinstance(old, _REBUILT_WHOLE):
        narrow = rebuild(old, memo)
        # In the place of the old one, so that the order of variables stays; once
        # only, where two attributes hold the same layer.
        put_in_place(owner, new, narrow)
        return narrow
    if isinstance(old, tuple) and _holds_layers(old):
        pairs = zip(old, new, strict=True)
        make = getattr(old, "_make", tuple)  # a named one's
        return make(_replacement(a, b, owner, memo) for a, b in pairs)
    if isinstance(old, (list, dict)) and _holds_layers(old):
        for key in old if isinstance(old, dict) else range(len(old)):
            new[key] = _replacement(old[key], new[key], owner, memo)
    elif isinstance(old, keras.layers.Layer) and id(old) not in memo:
        memo[id(old)] = new
        _replace_ffns(old, new, memo)
    return new


def _holds_layers(structure: Any) -> bool:
    if isinstance(structure, tuple):
        structure = list(structure)  # tensorflow wraps it, and it counts as a leaf
    leaves = keras.tree.flatten(structure)
    return any(isinstance(leaf, keras.layers.Layer) for leaf in leaves)


def compile_like(
    narrow: keras.Model, model: keras.Model, pairs: Sequence[Pair] | None
) -> None:
    """Compiles a narrow model with what the model it comes from was compiled with.

    The optimizer's state goes on for `pairs` of what is trained; None: it begins anew.
    """
    config = compile_arguments(model)
    for name in ("metrics", "weighted_metrics"):
        config[name] = keras.tree.map_structure(_fresh_metric, config[name])
    # An optimizer that is not built yet has no state, and pairs are then none.
    if model.optimizer is not None:
        config["optimizer"] = (
            optimizer_like(model.optimizer)
            if pairs is None
            else copy_optimizer(model.optimizer, pairs)
        )
    # The base class's: a `compile` of the model's own may take other arguments.
    keras.Model.compile(narrow, **config)
    if hasattr(model, "sampler"):  # of a KerasHub task that generates
        narrow.sampler, narrow.generate_function = model.sampler, None


def _fresh_metric(metric: object) -> object:
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
