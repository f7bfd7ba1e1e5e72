"""What is refused, in words, before a step at a width is taken."""

from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_idea.elastic.reading import FirstNeurons
from keras_idea.elastic.widths import FULL, Width, all_neurons_at
from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN, find_ffns
from keras_idea.groups.kinds import NEURONS
from keras_idea.hub.rebuild import check_plain
from keras_idea.keras_private.call_context import call_without_values
from keras_idea.keras_private.callbacks import warn_user
from keras_idea.keras_private.layers import (
    all_layers,
    has_lost_parameters,
    is_built,
    retrack_parameters,
)
from keras_idea.keras_private.models import compile_arguments
from keras_idea.keras_private.read_instead import rematerialized
from keras_idea.step.replicas import replicas_of, scope_of
from keras_idea.surgery.checks import (
    check_backbones,
    check_compiled,
    check_not_pruning,
    check_trainable,
)
from keras_idea.surgery.optimizer_state import check_carriable
from keras_idea.surgery.width_in_code import check_width_in_code
from keras_idea.validation import what_was_raised

#: Losses of one softmax over the last axis.
_OF_CLASSES = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
    keras.losses.CategoricalFocalCrossentropy,
)


def check_model(
    model: keras.Model, widths: Mapping[str, Width]
) -> tuple[list[FFN], dict[str, list[int]]]:
    """The FFNs that some width narrows, and the neurons of each at each width.

    Refuses a model that has none, and FFNs whose first neurons alone would be trained
    as no narrow model is.
    """
    check_compiled(model)
    check_plain(model)
    replicas_of(model)  # refuses ways to train that were not tried
    if is_built(model) and not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    ffns = find_ffns(model)
    if not ffns or not all(ffn.built for ffn in ffns):
        check_trainable(model, ffns, None, [NEURONS])  # says which
    ffns, counts = _narrowed_ones(ffns, all_neurons_at(widths, ffns))
    _check_live(ffns)
    ffns = check_trainable(model, ffns, None, [NEURONS])
    check_not_pruning(model, "ElasticCallback")
    for ffn in ffns:
        between = getattr(ffn.weights, "between", ())
        for layer in between:
            if isinstance(layer, keras.layers.BatchNormalization):
                raise ArgumentError(
                    f"BatchNormalization '{layer.path}' lies on the neurons of "
                    f"{ffn.name}, and its statistics would be of several widths at "
                    "once. Normalize before the FFN, or with LayerNormalization."
                )
        for cut in ffn.held_cuts():
            if cut.variable.constraint is not None:
                raise ArgumentError(
                    f"'{cut.variable.path}' has a constraint, which sees the neurons "
                    "of all widths at once. Make the model without it."
                )
    check_carriable(model.optimizer)
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    return ffns, counts


def _narrowed_ones(
    ffns: Sequence[FFN], counts: Mapping[str, Sequence[int]]
) -> tuple[list[FFN], dict[str, list[int]]]:
    """Without the FFNs that keep all neurons at each width."""
    places = [
        place
        for place, ffn in enumerate(ffns)
        if any(of_width[place] < ffn.hidden_dim for of_width in counts.values())
    ]
    of_these = {
        name: [of_width[place] for place in places] for name, of_width in counts.items()
    }
    return [ffns[place] for place in places], of_these


def _check_live(ffns: Sequence[FFN]) -> None:
    """Refuses FFNs that are frozen, or whose first neurons may be pruned ones."""
    frozen = [ffn.name for ffn in ffns if not all(k.trainable for k in ffn.kernels)]
    if frozen:
        raise ArgumentError(
            f"{', '.join(frozen)}: frozen (trainable=False, in whole or in part), so "
            "steps at a width do not train its neurons. Unfreeze it and compile the "
            "model again, or name the other FFNs in `widths`: of a width such as "
            '{"NAME": 0.5}, FFNs that are not named keep all neurons.'
        )
    pruned = [ffn.name for ffn in ffns if ffn.width < ffn.hidden_dim]
    if pruned:
        raise ArgumentError(
            f"{', '.join(pruned)}: some neurons are pruned and still there, so the "
            "first ones of a width may be among them. Train the widths of "
            "ki.compact(model)."
        )


def warn_if_unsorted(ffns: Sequence[FFN], begin_step: int, start: int) -> None:
    """Warns of neurons that are not sorted, as far as is known, and will not be."""
    if not 0 < begin_step < start:
        return
    orders = [ffn.original_indices for ffn in ffns]
    if all((order == np.arange(order.shape[-1])).all() for order in orders):
        warn_user(
            f"The optimizer has taken {start} steps, more than "
            f"begin_step={begin_step}, so the neurons are not sorted any more, and as "
            "far as is known they never were. Set a later begin_step, or 0 if they "
            "need not be sorted."
        )


def check_counts(
    model: keras.Model,
    ffns: Sequence[FFN],
    reading: FirstNeurons,
    counts: Mapping[str, Sequence[int]],
) -> None:
    """Refuses a model that computes something else, or nothing, at fewer neurons.

    By a forward pass without values, of models whose inputs are known.
    """
    for name, widths in counts.items():
        if name != FULL:
            check_backbones(model, list(zip(ffns, widths, strict=True)))
    check_width_in_code(model, ffns)
    if not getattr(model, "inputs", None) or isinstance(model, keras.Sequential):
        return
    for name, widths in counts.items():
        try:
            with reading.at(widths):
                call_without_values(model, model.input)
        except Exception as error:
            if name == FULL:  # it cannot be called so, at any width
                return
            raise ArgumentError(
                f"Model '{model.name}' cannot compute with fewer neurons than it has "
                f"(at width '{name}': {what_was_raised(error)}). Train a model of each "
                "width, or one by IdeaPruneCallback."
            ) from error


def check_passes(model: keras.Model, sample: object, teacher: str | None) -> None:
    """Refuses several passes in a step where they would be wrong, or mean nothing."""
    if sample != "sandwich" and teacher is None:
        return
    what = "sample='sandwich'" if sample == "sandwich" else "teacher='self'"
    repeated = rematerialized(model)
    if repeated:
        raise ArgumentError(
            f"{what} computes several widths in one step, and a rematerialized layer "
            f"would be computed again at the wrong one. Received: '{repeated[0]}' is "
            "rematerialized. Use sample='turn' without a teacher, or no "
            "keras.RematScope."
        )
    if teacher is None:
        return
    if isinstance(model, keras.distillation.Distiller):
        raise ArgumentError(
            "The model is a Distiller, which has a teacher already, for all widths. "
            "Leave teacher=None."
        )
    loss = compile_arguments(model).get("loss")
    config = loss.get_config() if isinstance(loss, _OF_CLASSES) else {}
    if not config.get("from_logits") or config.get("axis", -1) != -1:
        raise ArgumentError(
            "teacher='self' compares the logits of classes, and the model's loss does "
            f"not say that its outputs are some. Received: loss={loss!r}. Compile with "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True) or its like, "
            "or leave teacher=None."
        )
