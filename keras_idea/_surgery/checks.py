"""What must be true of a model before it is pruned, narrowed or copied."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras

from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import find_groups
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, NEURONS, KindName
from keras_idea._keras.layers import called_parts, student_of, walk
from keras_idea._keras.optimizer_variables import innermost, parts, trained_variables
from keras_idea._step.replicas import replicas_of
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import check_family, is_backbone
from keras_idea.hub.rebuild import check_plain

#: Which groups of a model: a function of a handle; None: all.
Groups: TypeAlias = Callable[[FFN], bool] | None


def check_compiled(model: keras.Model) -> None:
    """Rejects a model that is not compiled or not built."""
    if getattr(model, "optimizer", None) is None:
        raise ArgumentError(
            f"Model '{model.name}' is not compiled with an optimizer. Call "
            "`model.compile(optimizer=..., loss=...)` before `fit`."
        )
    for part in called_parts(student_of(model)):
        if not part.built:
            raise ArgumentError(
                f"Model '{part.name}' is not built. Call it once before `fit`: "
                "`model(x[:1])`, or begin it with `keras.Input`."
            )


def check_trainable(
    model: keras.Model, found: Sequence[FFN], groups: Groups, kinds: Sequence[KindName]
) -> list[FFN]:
    """Returns the groups of some kinds that `groups` takes, one at least.

    Raises if they cannot be pruned while the model trains.
    """
    every = [ffn for ffn in found if ffn.kind in kinds]
    for kind in kinds:
        if all(ffn.kind != kind for ffn in every):
            if kind == NEURONS:
                for backbone in filter(is_backbone, walk(model)):
                    check_family(backbone)
            raise ArgumentError(
                f"Model '{model.name}' has no {KINDS[kind].holder} whose "
                f"{KINDS[kind].units} can be pruned. {why_nothing(model, kind)}"
            )
    ffns = [ffn for ffn in every if groups is None or groups(ffn)]
    if not ffns:
        raise ArgumentError(
            f"`groups` takes none of the groups of model '{model.name}'. Received: "
            f"groups={groups!r}. Let it return True for one of: "
            f"{', '.join(ffn.name for ffn in every)}."
        )
    trained = set(map(id, model.trainable_variables))
    if model.optimizer.built:
        trained &= set(map(id, trained_variables(innermost(model.optimizer))))
    names = [ffn.name for ffn in ffns if not trained.issuperset(map(id, ffn.kernels))]
    if names:
        raise ArgumentError(
            f"{', '.join(names)}: frozen (trainable=False, in whole or in part), or "
            "the optimizer was built without its kernels. Unfreeze it and compile "
            f"again, or leave it out (`groups`): lambda ffn: ffn.name not in {names}."
        )
    _check_steps(model)
    return ffns


def check_not_pruning(model: keras.layers.Layer, what: str) -> list[FFN]:
    """Returns the groups of a model; raises if it is being pruned.

    `what` is what errors call the caller: "compact()" is allowed, since it copies what
    is active now, unless the masks are being learned.
    """
    check_plain(model)
    groups = find_groups(model)
    for group in groups:
        state = group.held_state
        if state is None or state.active_track is None:
            continue
        pruner = state.active_track.pruner()
        learned = pruner is not None and pruner.learner is not None
        if learned or what != "compact()":
            raise ArgumentError(
                f"{group.name} is being pruned{' by a learned mask' * learned}. Let "
                f"`fit` end, or call `callback.on_train_end()`, before {what}."
            )
    return groups


def _check_steps(model: keras.Model) -> None:
    """Rejects optimizers whose steps are not those of pruning."""
    optimizer = innermost(model.optimizer)
    if replicas_of(model) > 1 and optimizer.gradient_accumulation_steps:
        raise ArgumentError(
            "Pruning in several replicas does not support gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps}. Use larger batches instead."
        )
    if any(part.gradient_accumulation_steps for part in parts(optimizer)[1:]):
        raise ArgumentError(
            "Optimizers in a MultiOptimizer that accumulate gradients take steps at "
            "other times than pruning. Set no gradient_accumulation_steps in them."
        )
