"""Narrowing a model where it stands, in the middle of `fit`."""

import functools
import gc

import keras

from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.surgery.find import find_ffns
from keras_idea.surgery.optimizer_state import built_optimizer, narrow_variable
from keras_idea.surgery.train_function import make_train_function


def shrink_in_place(model):
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
    """
    ffns = find_ffns(model)
    narrow_to(model, [(ffn, ffn.kept_neurons()) for ffn in ffns])
    return ffns


def narrow_to(model, pairs):
    """Keeps given neurons of FFNs, as `shrink_in_place` does those alive.

    Args:
        model: a built Keras model, compiled or not.
        pairs: list of (`FFN` handle, ascending indices of the neurons that stay).
    """
    optimizer = built_optimizer(model)
    for ffn, kept in pairs:
        for variable, axis in [*ffn.cuts(), *ffn.state.cuts()]:
            narrow_variable(optimizer, variable, kept, axis)
        ffn.weights.set_hidden_dim(len(kept))
    if pairs:
        refresh(model)
        _tell_others(model, [v for ffn, _ in pairs for v, _ in ffn.cuts()])


def _tell_others(model, narrowed):
    """Has other models that share the narrowed variables ask to be compiled again.

    Their optimizers hold slots of the old shapes, and Keras keeps no list of them.
    """
    ours, ids = set(map(id, model._flatten_layers())), set(map(id, narrowed))
    own = getattr(model, "optimizer", None)
    for other in gc.get_objects():
        if not issubclass(type(other), keras.Model) or id(other) in ours:
            continue
        # Not `other.optimizer`: a model that was never initialized raises an error.
        optimizer = vars(other).get("optimizer")
        if optimizer is None or optimizer is own:
            continue
        trained = getattr(optimizer, "_trainable_variables", ())
        if any(id(v) in ids for v in trained):
            refresh(other)
            # `fit` asks for the one before anything else, loops step by the other.
            innermost(optimizer).apply = functools.partial(_refuse, other)
            other.make_train_function = functools.partial(_remake, other, optimizer)


def _remake(model, optimizer, force=False):
    """`make_train_function` of a model that must be compiled again first."""
    if model.optimizer is optimizer:
        _refuse(model)
    del model.make_train_function
    model.make_train_function(force=force)


def _refuse(model, *args, **kwargs):
    raise ValueError(
        f"Model '{model.name}' shares FFNs that became narrower while another model "
        "was trained; its optimizer still holds the state of the wide ones. Compile it "
        "again."
    )


def refresh(model):
    """Makes Keras know a model whose variables are others than before."""
    retrack_parameters(model)
    renew_functions(model)


def renew_functions(model):
    """Makes anew the train, test, predict and generate functions of a model.

    Of the models in it too, such as the student of a `Distiller`.
    """
    for part in model._flatten_layers():
        if getattr(part, "train_function", None) is not None:
            make_train_function(part)
        for name in ("test", "predict"):
            if getattr(part, f"{name}_function", None) is not None:
                getattr(part, f"make_{name}_function")(force=True)
        if getattr(part, "generate_function", None) is not None:
            part.generate_function = None  # KerasHub makes it at the next `generate`


def retrack_parameters(model):
    """Makes torch know the parameters that a built model has now.

    There a model and its layers hold dictionaries of their parameters, made when
    they were built; `zero_grad` would miss the new ones.
    """
    for layer in model._flatten_layers():
        if hasattr(layer, "_track_variables"):
            layer._track_variables()
