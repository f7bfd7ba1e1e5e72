"""Probes of pruning methods: put into a compiled model, and taken out again."""

from collections.abc import Iterable

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.groups.kinds import KINDS
from keras_idea.keras_private.call_context import call_without_values
from keras_idea.keras_private.optimizer_variables import (
    innermost,
    parts,
    train_others,
    trained_variables,
)
from keras_idea.methods.method import Decision
from keras_idea.signals import held_back
from keras_idea.step.row_ops import zero_rows
from keras_idea.step.train_function import mark_train_step, unmark_train_step
from keras_idea.surgery.narrow_in_place import refresh
from keras_idea.surgery.optimizer_state import built_optimizer


def check_probes(
    ffns: Iterable[FFN],
    optimizer: keras.Optimizer | None,
    method: str,
    replicas: int = 1,
) -> None:
    """Refuses FFNs that hide their activations from a method.

    And, unless the optimizer is None as no probes are put in for training, a way to
    train in which they would not measure what they should.
    """
    for ffn in ffns:
        kind = KINDS[ffn.kind]
        if kind.by_readers and optimizer is None:
            continue  # what reads them is looked at, outside of training
        if not kind.probed:
            data = ", 'activation' with data" if kind.by_readers else ""
            raise ArgumentError(
                f"Method '{method}' needs hidden activations, so it does not support "
                f"{ffn.units}. Received: those of {ffn.name}. Use "
                f"method='sensitivity', 'magnitude' or 'random'{data}, or leave "
                f"{ffn.kind!r} out."
            )
        if not ffn.shows_hidden:
            raise ArgumentError(
                f"Method '{method}' needs the hidden activations of {ffn.name}, which "
                "no single layer is called on. Use method='sensitivity' or 'random'."
            )
    if optimizer is None:
        return
    if replicas > 1:
        raise ArgumentError(
            f"Method '{method}' measures in the train step, and each of the {replicas} "
            "replicas would measure its own share of the batch. Use "
            "method='sensitivity' or 'random', or one device."
        )
    inner = innermost(optimizer)
    if inner.gradient_accumulation_steps:
        raise ArgumentError(
            f"Method '{method}' measures in the train step, and under "
            f"gradient_accumulation_steps={inner.gradient_accumulation_steps} Keras "
            "keeps only the largest of a window's values. Use larger batches instead, "
            "or another method ('activation' with data needs no train step)."
        )
    every = getattr(inner, "ema_overwrite_frequency", None)
    if every and inner.use_ema and keras.backend.backend() != "torch":
        raise ArgumentError(
            f"Method '{method}' gives the optimizer variables that have no moving "
            f"average, and Keras on {keras.backend.backend()} fails over them in the "
            f"step that puts the averages back. Received: ema_overwrite_frequency="
            f"{every}. Leave it out (the averages are put back when `fit` ends), or "
            "use another method ('activation' with data needs no such variables)."
        )
    if hasattr(inner, "optimizers"):
        raise ArgumentError(
            f"Method '{method}' gives the optimizer further variables, which "
            f"{type(inner).__name__} cannot take. Use one optimizer for all."
        )


@held_back()
def attach_probes(
    model: keras.Model, pairs: Iterable[tuple[FFN, keras.layers.Layer]]
) -> None:
    """Hangs a probe into each FFN of a model, in place, also in mid-`fit`.

    The model's optimizer learns of the probes' variables. On jax the model must be in
    sync (touching `callback.model` does it).
    """
    mark_train_step(model)
    for ffn, probe in pairs:
        ffn.set_probe(probe)
    optimizer = built_optimizer(model)
    if optimizer is not None:
        _train(optimizer, model.trainable_variables)
    refresh(model)


@held_back()
def check_calls(model: keras.Model) -> None:
    """Has probes find FFNs that a model calls twice, before a step is taken.

    A forward pass without values, of models whose inputs are known (functional ones).
    """
    if getattr(model, "inputs", None):
        sequential = isinstance(model, keras.Sequential)  # which has no `input`
        call_without_values(model, model.inputs[0] if sequential else model.input)


@held_back()
def detach_probes(model: keras.Model, ffns: Iterable[FFN]) -> None:
    """Takes the probes off again, in place; of FFNs without one nothing."""
    unmark_train_step(model)
    given_up = [variable for ffn in ffns for variable in ffn.set_probe(None)]
    if not given_up:
        return
    optimizer = built_optimizer(model)
    if optimizer is not None:
        gone = set(map(id, given_up))
        left = trained_variables(innermost(optimizer))
        _train(optimizer, [v for v in left if id(v) not in gone])
    refresh(model)


def _train(optimizer: keras.Optimizer, variables: list[keras.Variable]) -> None:
    """Makes an optimizer train these variables in this order, in place.

    New ones have `overwrite_with_gradient=True`: it keeps no slots for them.
    """
    for part in parts(optimizer):
        trained = trained_variables(part)
        index = {id(variable): i for i, variable in enumerate(trained)}
        order = [index.get(id(variable)) for variable in variables]
        slots = {
            name: [None if i is None else slot[i] for i in order]
            for name, slot in vars(part).items()
            if isinstance(slot, list) and len(slot) == len(trained)
            if not name.endswith("_variables") and not name.startswith("_self_")
        }
        train_others(part, variables, slots)


@held_back()
def carry_out_decision(ffn: FFN, decision: Decision) -> None:
    """Masks all neurons of an FFN but those decided for, in place."""
    if decision.scale is not None:
        *_, down = ffn.kernels
        scale_F1 = ops.convert_to_tensor(decision.scale, dtype=down.dtype)[:, None]
        down.assign(down.value * scale_F1)
    ffn.state.set_mask(decision.mask)
    if not ffn.masks_itself:
        zero_rows(ffn.cuts(), ffn.state.mask.value)
