"""What state a model is in: one place knows, and whatever depends on it asks here.

Nobody prunes the FFNs of a model (masked or not, narrowed or not), or a pruner is at
work in them.
Some of its layers may be frozen, quantized or have LoRA, and its optimizer may train
other variables than its own.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras

from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import FFN, find_groups
from keras_idea._groups.kinds import KINDS, NEURONS, KindName
from keras_idea._keras.layers import has_call, walk
from keras_idea._keras.optimizer_variables import (
    innermost,
    parts,
    trained_variables,
)
from keras_idea._step.replicas import replicas_of
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import check_family, is_backbone
from keras_idea.hub.rebuild import check_plain

#: Which FFNs of a model: a function of a handle; None: all.
Groups: TypeAlias = Callable[[FFN], bool] | None


def is_being_pruned(ffns: Sequence[FFN]) -> bool:
    """Whether a pruner is at work in FFNs, whatever optimizer their model has now."""
    states = [ffn.held_state for ffn in ffns]
    return any(state is not None and state.active_track is not None for state in states)


def check_compiled(model: keras.Model) -> None:
    """Refuses a model without an optimizer."""
    if getattr(model, "optimizer", None) is None:
        raise ArgumentError(
            f"Model '{model.name}' is not compiled with an optimizer. Call "
            "`model.compile(optimizer=..., loss=...)` before `fit`."
        )


def check_trainable(
    model: keras.Model, found: Sequence[FFN], groups: Groups, kinds: Sequence[KindName]
) -> list[FFN]:
    """Refuses, when `fit` begins, a model whose FFNs cannot be pruned as it stands.

    Returns those of `found`, one at least, of these kinds that `groups` takes.
    """
    all_found = [ffn for ffn in found if ffn.kind in kinds]
    ffns = [ffn for ffn in all_found if groups is None or groups(ffn)]
    check_plain(model)
    if not ffns and groups is not None and all_found:
        names = ", ".join(ffn.name for ffn in all_found)
        raise ArgumentError(
            f"`groups` takes none of the FFNs of model '{model.name}'. Received: "
            f"groups={groups!r}. Let it return True for one of: {names}."
        )
    for kind in kinds:
        if all(ffn.kind != kind for ffn in all_found):
            if kind == NEURONS:
                for backbone in [layer for layer in walk(model) if is_backbone(layer)]:
                    check_family(backbone)
            raise ArgumentError(
                f"Model '{model.name}' has no {KINDS[kind].holder} whose "
                f"{KINDS[kind].units} can be pruned. "
                f"{why_nothing(model, kind)}"
            )
    if not all(ffn.built for ffn in ffns):
        cure = "Call it on data, or `model.build(input_shape)`,"
        if not has_call(model):
            cure = "Begin each model in it with `keras.Input`, or call it on data,"
        raise ArgumentError(
            f"Model '{model.name}' is not built, so there are no neurons to rank yet. "
            f"{cure} before training begins."
        )
    frozen = [ffn.name for ffn in ffns if not all(k.trainable for k in ffn.kernels)]
    if frozen:
        cure = f"pass groups=lambda ffn: ffn.name not in {frozen!r}"
        if groups is not None:
            cure = f"let `groups` return False for {' and '.join(frozen)} too"
        raise ArgumentError(
            f"{', '.join(frozen)}: frozen (trainable=False, in whole or in part), so "
            "there are no gradients to rank neurons by. Unfreeze the kernels and "
            f"compile the model again, or {cure}."
        )
    untrained = _untrained(ffns, model.optimizer)
    if untrained:
        raise ArgumentError(
            f"The optimizer of model '{model.name}' does not train the kernels of "
            f"{', '.join(untrained)}: it was built before they were part of "
            "the model, for another model, or another optimizer trains them. Compile "
            "the model again, with the one optimizer that trains its FFNs."
        )
    _check_steps(model)
    return ffns


def layers_of(ffns: Sequence[FFN]) -> list[keras.layers.Layer]:
    """The layers that hold the weights of FFNs."""
    return [layer for ffn in ffns for layer in ffn.layers]


def check_not_pruning(model: keras.layers.Layer, what: str) -> list[FFN]:
    """The FFNs of a model, unless it is in the middle of pruning.

    `what` is asked for: "compact()" is allowed while a pruner is at work. Refuses
    KerasHub models that have LoRA or are quantized.
    """
    check_plain(model)
    ffns = find_groups(model)
    for ffn in ffns:
        live = None if ffn.held_state is None else ffn.held_state.active_track
        pruner = None if live is None else live.pruner()
        if pruner is not None and pruner.learner is not None:
            raise ArgumentError(
                f"The mask of {ffn.name} is being learned, and its kernel holds a draw "
                "of it. Let `fit` end, or end it with `callback.on_train_end()`, "
                f"before {what}."
            )
    if is_being_pruned(ffns) and what != "compact()":  # which copies what is alive now
        raise ArgumentError(
            f"Model '{model.name}' is being pruned: the optimizer still holds scores "
            "and masks of the wide FFNs. Let `fit` end, or end pruning with "
            f"`callback.on_train_end()`, before {what}."
        )
    return ffns


def _check_steps(model: keras.Model) -> None:
    """Refuses what gives the optimizer another gradient than the step is made with."""
    optimizer = innermost(model.optimizer)
    if replicas_of(model) > 1 and optimizer.gradient_accumulation_steps:
        raise ArgumentError(
            "gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps} in several replicas: each would "
            "score by what it has accumulated itself. Use larger batches instead."
        )
    inner = parts(optimizer)[1:]  # of a MultiOptimizer
    if any(part.gradient_accumulation_steps for part in inner):
        raise ArgumentError(
            "MultiOptimizer whose optimizers accumulate gradients: they would take "
            "their steps at other times than pruning. Set no "
            "gradient_accumulation_steps in them."
        )


def _untrained(ffns: list[FFN], optimizer: keras.Optimizer) -> list[str]:
    if not optimizer.built:
        return []
    optimizer = innermost(optimizer)
    trained = set(map(id, trained_variables(optimizer)))
    return [
        ffn.name
        for ffn in ffns
        if not trained.issuperset(id(k) for k in ffn.kernels if k.trainable)
    ]
