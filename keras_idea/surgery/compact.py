"""From a masked model to a new, physically narrow one."""

import functools
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, overload

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.finding.pairing import Pair, cut_to, paired_variables
from keras_idea.groups.kinds import NEURONS
from keras_idea.hub.compare import (
    check_same_function,
    check_same_outputs,
    outputs_of,
)
from keras_idea.hub.families import is_backbone
from keras_idea.keras_private.bare_copy import hand_on_training
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.layers import (
    is_built,
    retrack_parameters,
    student_of,
    walk,
)
from keras_idea.keras_private.models import compile_arguments
from keras_idea.keras_private.symbolic import example_arrays
from keras_idea.layers.ffn import FFNLayer, Prunable
from keras_idea.surgery.checks import check_not_pruning
from keras_idea.surgery.copying import Copier, fresh_metric
from keras_idea.surgery.first_width import hand_on_first_widths
from keras_idea.surgery.narrow_in_place import narrow_copy
from keras_idea.surgery.one_number import check_one_count, check_one_width
from keras_idea.surgery.optimizer_state import (
    built_optimizer,
    carry_state,
    check_carriable,
    copy_optimizer,
    optimizer_like,
)
from keras_idea.surgery.own_config import follow_widths, warn_of_stuck
from keras_idea.surgery.proof import open_sizes_for, prove
from keras_idea.surgery.width_in_code import check_width_in_code

Model = TypeVar("Model", bound=keras.layers.Layer)


@overload
def compact(model: Prunable) -> FFNLayer: ...
@overload
def compact(model: Model) -> Model: ...
def compact(model: keras.layers.Layer) -> keras.layers.Layer:
    """Returns a new, narrow model that computes what the masked model computes.

    Use it for a model that is masked but still wide, and to replace the prunable layers
    of this package with plain ones. Every `PrunableGatedFFN` becomes a `GatedFFN` and
    every `PrunableFFN` an `UngatedFFN`, with the neurons that are active now. Other
    layers keep their class. FFNs of Dense layers keep the neurons that have a weight
    other than zero, and attention layers keep such heads. A KerasHub model is checked
    on a probe batch, and a model with code of your own on an example.

    If the model is compiled, the new model is compiled too, and the optimizer's state
    is sliced in the same way. Its next train step equals the next train step of the old
    model.

    Args:
        model: keras.layers.Layer. A built functional, Sequential or subclassed Keras
            model, a KerasHub task or backbone, or an FFN of this package. It is not
            changed. A subclassed model or layer needs no `get_config`: what it holds
            is copied.

    Returns:
        A new model or layer. `compact(compact(model))` equals `compact(model)`.

    Raises:
        ValueError: If `model` is not a Keras layer, is not built, or is a `Distiller`.
            If its masks are being learned. If a KerasHub model in it has LoRA, is
            quantized, or would need widths that its config cannot hold. If a layer
            holds state that Keras does not know (a torch module), or if the copy
            computes something else. If the optimizer's state cannot be carried over.

    Example:
    >>> prune = ki.IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = model.fit(data, callbacks=[prune], verbose=0)
    >>> narrow = compact(model)
    >>> narrow.save("narrow.keras")
    """
    narrow, pairs = narrowed(model, "compact()")
    hand_on_first_widths(model, narrow, pairs)
    compile_trained(narrow, model, pairs)
    _NARROW.add(narrow)
    return narrow


def narrowed(
    model: keras.layers.Layer,
    caller: str,
    kept_of: Callable[[FFN], np.ndarray] = FFN.kept_neurons,
    as_narrow: AbstractContextManager | None = None,
) -> tuple[keras.layers.Layer, list[Pair]]:
    """As `compact`, of any layer, but not compiled; with the variables of the two.

    `caller` is what errors call the function that needs it. `kept_of` gives the
    ascending indices of the units that an FFN keeps, `as_narrow` is a scope in which
    the model computes with these alone, where the others are not zeros.
    """
    ffns = check_not_pruning(model, caller)
    if student_of(model) is not model:
        raise ArgumentError(
            f"'{model.name}' is a Distiller, whose teacher is not pruned. Compact what "
            "it has trained: compact(distiller.student)."
        )
    _warn_of_nothing(model, ffns)
    if not is_built(model):
        raise ArgumentError(
            f"Model '{model.name}' is not built, so there is nothing to copy. Call "
            "it on data, or `model.build(input_shape)`, first."
        )
    optimizer = built_optimizer(model)
    if optimizer is not None:
        check_carriable(optimizer, [cut for ffn in ffns for cut in ffn.cuts()])
    kept = [(ffn, kept_of(ffn)) for ffn in ffns]
    for backbone in [layer for layer in walk(model) if is_backbone(layer)]:
        widths = {id(ffn.layer): stay.shape[-1] for ffn, stay in kept}
        check_one_width(backbone, widths)
        check_one_count(backbone, widths)
    cut = [ffn for ffn, stay in kept if stay.shape[-1] < ffn.hidden_dim]
    check_width_in_code(model, cut)
    prove(model, [ffn for ffn in cut if ffn.kind != NEURONS])
    copier = Copier({id(ffn.layer): stay.shape[-1] for ffn, stay in kept})
    narrow = copier.layer(model)
    if not is_built(narrow):
        narrow.build_from_config(model.get_build_config())
        narrow.built = True  # as Keras's own loading does
    retrack_parameters(walk(narrow))
    narrow_copy(model, narrow, kept)
    pairs = paired_variables(model, narrow, kept)
    for old, new, stays in pairs:
        hand_on_training(old, new)
        new.assign(cut_to(old, stays))
    for held, copied in copier.optimizers:
        carry_state(held, copied, pairs)
    with as_narrow or nullcontext():
        check_same_function(model, narrow)
        with open_sizes_for(ffns):
            _check_own_code(model, narrow)
    narrowed_to = {(ffn.hidden_dim, stay.shape[-1]) for ffn, stay in kept}
    warn_of_stuck(follow_widths(narrow, narrowed_to))
    return narrow, pairs


def _check_own_code(model: keras.layers.Layer, narrow: keras.layers.Layer) -> None:
    """Compares the two models on an example if the model holds custom classes.

    Compares nothing if the model's inputs are not known or its outputs are random.
    """
    known = ("keras.", "keras_hub.", "keras_idea.")
    if all(type(layer).__module__.startswith(known) for layer in walk(model)):
        return
    inputs = example_arrays(model)
    try:
        expected, again = (outputs_of(model, inputs) for _ in range(2))
    except Exception:  # it may be called on something else than it was built for
        return
    if np.array_equal(expected, again, equal_nan=True):
        outputs = functools.partial(outputs_of, inputs=inputs)
        check_same_outputs(model, narrow, outputs)


# What `compact` has returned: to compact it again is no mistake.
_NARROW: weakref.WeakSet[keras.layers.Layer] = weakref.WeakSet()


def _warn_of_nothing(model: keras.layers.Layer, ffns: list[FFN]) -> None:
    ours = any(isinstance(layer, FFNLayer) for layer in walk(model))
    if not ffns and not ours and model not in _NARROW:
        warn_user(
            f"Model '{model.name}' holds no FFN that can be pruned, so compact() "
            "returns a copy of the same shape. `keras_idea.explain(model)` says why."
        )


def compile_trained(
    narrow: keras.layers.Layer, model: keras.layers.Layer, pairs: Sequence[Pair]
) -> None:
    """As `compile_like`, where the model is compiled, with the optimizer's state."""
    if getattr(model, "compiled", False):
        trained = {id(variable) for variable in narrow.trainable_variables}
        compile_like(narrow, model, [p for p in pairs if id(p[1]) in trained])


def compile_like(
    narrow: keras.Model, model: keras.Model, pairs: Sequence[Pair] | None
) -> None:
    """Compiles a narrow model with what the model it comes from was compiled with.

    The optimizer's state is kept for `pairs` of what is trained; None: it begins anew.
    """
    config = compile_arguments(model)
    for name in ("metrics", "weighted_metrics"):
        config[name] = keras.tree.map_structure(fresh_metric, config[name])
    # An optimizer that is not built yet has no state, and pairs are then none.
    if model.optimizer is not None:
        config["optimizer"] = (
            optimizer_like(model.optimizer)
            if pairs is None
            else copy_optimizer(model.optimizer, pairs)
        )
    # The base class's method: the model's own may take other arguments.
    keras.Model.compile(narrow, **config)
    if hasattr(model, "sampler"):  # of a KerasHub task that generates
        narrow.sampler, narrow.generate_function = model.sampler, None
