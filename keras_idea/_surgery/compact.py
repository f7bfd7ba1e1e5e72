"""Makes a narrow model that computes what a masked one does."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, overload

import keras
import numpy as np

from keras_idea._finding.find import find_groups
from keras_idea._graph.configs import check_configs, warn_of_stuck
from keras_idea._graph.group import FFN
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.layers import is_built, student_of
from keras_idea._keras.models import compile_arguments
from keras_idea._layers import Prunable
from keras_idea._surgery.checks import check_not_pruning
from keras_idea._surgery.copying import Copies, copied
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea._surgery.optimizer_state import copy_optimizer, optimizer_like
from keras_idea._surgery.trial import size_for, try_cuts
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_function

Model = TypeVar("Model", bound=keras.layers.Layer)


@overload
def compact(model: Prunable) -> Any: ...
@overload
def compact(model: Model, in_place: bool = False) -> Model: ...
def compact(model: keras.layers.Layer, in_place: bool = False) -> keras.layers.Layer:
    """Returns a narrow model that computes what the masked model computes.

    Use it for a model that is masked but still wide. FFNs of Dense layers keep the
    neurons that have a weight other than zero, attention layers such heads. Every
    `PrunableGatedFFN` becomes a `GatedFFN` and every `PrunableFFN` an `UngatedFFN`.
    Other layers keep their class. The copy is compared with the model on an example.

    If the model is compiled, the new model is compiled too, and the optimizer's state
    is sliced in the same way. Its next train step equals the next train step of the old
    model.

    Args:
        model: keras.layers.Layer. A built functional, Sequential or subclassed Keras
            model, a KerasHub task or backbone, or an FFN of this package. Keras copies
            a class of your own by its `get_config`.
        in_place: bool. Whether to narrow the model itself, which needs no config. Its
            layers, variables and optimizer stay the same objects; prunable FFNs stay
            prunable. Compile other models of the same layers again. Defaults to False:
            the model is not changed.

    Returns:
        The new model or layer; the same one if `in_place`. `compact(compact(model))`
        equals `compact(model)`.

    Raises:
        ValueError: If `model` is not built, is a `Distiller`, or its masks are being
            learned. If a KerasHub model in it has LoRA, is quantized, or would need
            widths that its config cannot hold. If a layer's config does not make it
            again, the copy computes something else, or the optimizer's state cannot be
            carried over.

    Example:
    >>> prune = ki.IdeaPruneCallback(target_dim=4, begin_step=1, prune_steps=2)
    >>> _ = model.fit(data, callbacks=[prune], verbose=0)
    >>> narrow = compact(model)
    >>> narrow.save("narrow.keras")
    """
    if not in_place:
        return narrowed(model, "compact()", compiled=True)
    kept = _kept(model, "compact(in_place=True)", FFN.kept_neurons)
    cut = [pair for pair in kept if pair[1].shape[-1] < pair[0].hidden_dim]
    try_cuts(model, cut)
    warn_of_stuck(narrow_whole(model, cut))
    return model


def narrowed(
    model: keras.layers.Layer,
    caller: str,
    kept_of: Callable[[FFN], np.ndarray] = FFN.kept_neurons,
    as_narrow: AbstractContextManager | None = None,
    compiled: bool = False,
) -> Any:
    """As `compact`, for any layer; compiled only on demand.

    `caller` is what errors call the caller. `kept_of` gives the ascending indices of
    the units that an FFN keeps. If the others are not zeros, `as_narrow` is a scope in
    which the model computes without them.
    """
    kept = _kept(model, caller, kept_of)
    narrow, copies = copied(model)
    if compiled and getattr(model, "compiled", False):
        compile_like(narrow, model, copies)
    warn_of_stuck(narrow_whole(narrow, _of_copy(narrow, kept, copies)))
    with as_narrow or nullcontext():
        check_same_function(model, narrow, size_for([ffn for ffn, _ in kept]))
    return narrow


def _kept(
    model: keras.layers.Layer, caller: str, kept_of: Callable[[FFN], np.ndarray]
) -> list[tuple[FFN, np.ndarray]]:
    """Returns the FFNs of a model that can be narrowed, and what they keep."""
    ffns = check_not_pruning(model, caller)
    if student_of(model) is not model:
        raise ArgumentError(
            f"'{model.name}' is a Distiller, whose teacher is not pruned. Compact what "
            "it has trained: compact(distiller.student)."
        )
    if not is_built(model):
        raise ArgumentError(
            f"Model '{model.name}' is not built, so there is nothing to narrow. Call "
            "it on data, or `model.build(input_shape)`, first."
        )
    if not ffns:
        warn_user(
            f"Model '{model.name}' holds no FFN that can be pruned, so nothing becomes "
            "narrow. `keras_idea.explain(model)` says why."
        )
    kept = [(ffn, kept_of(ffn)) for ffn in ffns]
    check_configs(model, [(f, stay.shape[-1]) for f, stay in kept], hub_only=True)
    return kept


def _of_copy(
    copy: keras.layers.Layer, kept: list[tuple[FFN, np.ndarray]], copies: Copies
) -> list[tuple[FFN, np.ndarray]]:
    """Returns the FFNs of a copy that become narrower, and what they keep.

    Also copies the original widths and indices: fractions count from these widths.
    """
    ours = {id(ffn.kernels[0]): ffn for ffn in find_groups(copy)}
    twins = {id(old): ours.get(id(new)) for old, new in copies}
    cut = []
    for ffn, stay in kept:
        twin = twins[id(ffn.kernels[0])]
        narrower = stay.shape[-1] < ffn.hidden_dim
        if twin is None and narrower:
            raise ArgumentError(
                f"{ffn.name} cannot be found in a copy of '{copy.name}', so it would "
                "stay wide. Narrow the model itself: compact(model, in_place=True)."
            )
        if twin is not None and ffn.held_state is not None:  # looking makes none
            twin.state.full_dim = ffn.held_state.full_dim or ffn.hidden_dim
            twin.state.original_index.assign(ffn.original_indices.astype("float32"))
        if twin is not None and narrower:
            cut.append((twin, stay))
    return cut


def compile_like(
    copy: keras.Model, model: keras.Model, copies: Copies | None = None
) -> None:
    """Compiles a copy with what its model was compiled with.

    The optimizer has the same state, if `copies` (see `copied`) are given.
    """
    config = compile_arguments(model)
    for name in ("metrics", "weighted_metrics"):
        config[name] = keras.tree.map_structure(_fresh_metric, config[name])
    if model.optimizer is not None:
        config["optimizer"] = (
            optimizer_like(model.optimizer)
            if copies is None
            else copy_optimizer(model.optimizer, copies)
        )
    # The base class's method: the model's own may take other arguments.
    keras.Model.compile(copy, **config)
    if hasattr(model, "sampler"):  # of a KerasHub task that generates
        copy.sampler, copy.generate_function = model.sampler, None


def _fresh_metric(metric: Any) -> Any:
    """A metric of the same config with fresh state; other values as they are."""
    if not isinstance(metric, keras.metrics.Metric):
        return metric
    return type(metric).from_config(metric.get_config())
