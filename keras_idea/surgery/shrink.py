"""Narrowing a model where it stands, in the middle of `fit`."""

import functools
from collections.abc import Sequence
from typing import NoReturn

import keras
import numpy as np

from keras_idea.keras_private.layer_walk import all_layers
from keras_idea.keras_private.layers import retrack_parameters
from keras_idea.keras_private.models import living_models, make_train_function
from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.keras_private.optimizer_variables import trained_variables
from keras_idea.surgery.condition import check_at_rest
from keras_idea.surgery.find import FFN, find_ffns
from keras_idea.surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    narrow_variable,
)
from keras_idea.surgery.replicas import scope_of


def shrink_in_place(model: keras.Model) -> list[FFN]:
    """Makes every prunable FFN of a model physically as wide as it is alive.

    Kernels, biases, scores and the optimizer's slots are sliced one by one, on
    their devices, so that the peak of memory is that of training plus one
    variable. The layers, variables and the optimizer stay the same objects.
    Functions that were traced with the old shapes are made anew.

    Args:
        model: a built Keras model, compiled or not, with no pruner at work. During
            `fit` on jax its state must be synced (touching `callback.model` does it).

    Returns:
        list of the FFN handles of the model.

    Raises:
        ValueError: if the model is being pruned. It is left as it was.
    """
    ffns = check_at_rest(model, "shrink_in_place()")
    narrow_to(model, [(ffn, ffn.kept_neurons()) for ffn in ffns])
    return ffns


def narrow_to(
    model: keras.Model,
    pairs: Sequence[tuple[FFN, np.ndarray]],
    others: Sequence[keras.Model] | None = None,
) -> None:
    """Keeps given neurons of FFNs, as `shrink_in_place` does those alive.

    Args:
        model: a built Keras model, compiled or not.
        pairs: list of (`FFN` handle, ascending indices of the neurons that stay,
            see `Cut.take`).
        others: list of `models_that_share`, if they were looked for before.

    Raises:
        ValueError: if the optimizer's state cannot be cut; the model is then as it was.
    """
    optimizer = built_optimizer(model)
    if optimizer is not None and pairs:
        # Before anything is cut.
        check_carriable(optimizer, [cut for ffn, _ in pairs for cut in ffn.cuts()])
    with scope_of(model):
        for ffn, kept in pairs:
            for cut in [*ffn.cuts(), *ffn.state.cuts()]:
                narrow_variable(optimizer, cut, kept)
            ffn.weights.set_hidden_dim(kept.shape[-1])
    if pairs:
        refresh(model)
        narrowed = {id(cut.variable) for ffn, _ in pairs for cut in ffn.cuts()}
        for other in models_that_share(model) if others is None else others:
            _tell(other, model, narrowed)


def models_that_share(model: keras.Model) -> list[keras.Model]:
    """Other models that have FFNs of this one, or train them by an optimizer.

    Keras keeps no list of them: all models of the process are looked through.
    """
    ours = set(map(id, all_layers(model)))
    weights = {id(cut.variable) for ffn in find_ffns(model) for cut in ffn.cuts()}
    return [
        other
        for other in living_models()
        if id(other) not in ours and (_trains(other, weights) or _has(other, weights))
    ]


def _trains(other: keras.Model, weights: set[int]) -> bool:
    optimizer = _optimizer_of(other)
    return optimizer is not None and any(
        id(v) in weights for v in trained_variables(optimizer)
    )


def _has(other: keras.Model, weights: set[int]) -> bool:
    return any(id(v) in weights for v in other.variables)


def _optimizer_of(model: keras.Model) -> keras.Optimizer | None:
    optimizer = getattr(model, "optimizer", None)
    return optimizer if isinstance(optimizer, keras.Optimizer) else None


def _tell(other: keras.Model, model: keras.Model, narrowed: set[int]) -> None:
    """Makes the functions of another model anew that were traced with old shapes.

    One that trains the FFNs by an optimizer of its own, which holds slots of old
    shapes, asks to be compiled again.

    Args:
        other: a Keras model, compiled or not.
        model: the one that became narrower.
        narrowed: the `id`s of the variables that did.
    """
    refresh(other)
    optimizer = _optimizer_of(other)
    if optimizer is not _optimizer_of(model) and _trains(other, narrowed):
        # `fit` asks for the one before anything else, loops step by the other.
        innermost(optimizer).apply = functools.partial(_refuse, other)
        other.make_train_function = functools.partial(_remake, other, optimizer)


def _remake(
    model: keras.Model, optimizer: keras.Optimizer, force: bool = False
) -> None:
    """`make_train_function` of a model that must be compiled again first."""
    if model.optimizer is optimizer:
        _refuse(model)
    del model.make_train_function
    model.make_train_function(force=force)


def _refuse(model: keras.Model, *args: object, **kwargs: object) -> NoReturn:
    raise ValueError(
        f"Model '{model.name}' shares FFNs that became narrower while another model "
        "was trained; its optimizer still holds the state of the wide ones. Compile it "
        "again."
    )


def refresh(model: keras.Model) -> None:
    """Makes Keras know a model whose variables are others than before."""
    retrack_parameters(all_layers(model))
    renew_functions(model)


def renew_functions(model: keras.Model) -> None:
    """Makes anew the train, test, predict and generate functions of a model.

    Of the models in it too, such as the student of a `Distiller`.
    """
    for part in all_layers(model):
        if getattr(part, "train_function", None) is not None:
            make_train_function(part)
        for name in ("test", "predict"):
            if getattr(part, f"{name}_function", None) is not None:
                getattr(part, f"make_{name}_function")(force=True)
        if getattr(part, "generate_function", None) is not None:
            part.generate_function = None  # KerasHub makes it at the next `generate`
