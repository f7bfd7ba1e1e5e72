"""What is refused, in words, before a step at a width is taken."""

from collections.abc import Mapping, Sequence

import keras

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.elastic.reading import FirstNeurons
from keras_idea.elastic.widths import FULL
from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN, find_ffns
from keras_idea.groups.kinds import NEURONS
from keras_idea.keras_private.call_context import call_without_values
from keras_idea.keras_private.callbacks import peers
from keras_idea.keras_private.layers import (
    all_layers,
    has_lost_parameters,
    is_built,
    retrack_parameters,
)
from keras_idea.keras_private.models import compile_arguments
from keras_idea.keras_private.read_instead import rematerialized
from keras_idea.step.replicas import scope_of
from keras_idea.surgery.checks import (
    check_backbones,
    check_compiled,
    check_not_pruning,
    check_trainable,
)
from keras_idea.surgery.optimizer_state import check_carriable
from keras_idea.surgery.width_in_code import check_width_in_code
from keras_idea.validation import what_was_raised


def check_peers(callback: keras.callbacks.Callback) -> None:
    """Refuses a second callback that changes the width of a model in one `fit`."""
    for peer in peers(callback):
        if isinstance(peer, IdeaPruneCallback):
            raise ArgumentError(
                "One `fit` takes an ElasticCallback or an IdeaPruneCallback, not both: "
                "the one trains neurons that the other takes away. Prune first, and "
                "train the widths of the narrow model in a second `fit`."
            )
        if isinstance(peer, type(callback)) and peer is not callback:
            raise ArgumentError(
                "One `fit` takes one ElasticCallback. Received: two. Give all widths "
                "to one."
            )


def check_model(model: keras.Model) -> list[FFN]:
    """The FFNs of a model that is to be trained at several widths.

    Refuses one that has none, and FFNs whose first neurons alone would be trained as
    no narrow model is.
    """
    check_compiled(model)
    if is_built(model) and not model.optimizer.built:
        with scope_of(model):
            model.optimizer.build(model.trainable_variables)
    found = check_trainable(model, find_ffns(model), None, [NEURONS])
    check_not_pruning(model, "ElasticCallback")
    for ffn in found:
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
    check_carriable(model.optimizer, [cut for ffn in found for cut in ffn.cuts()])
    if has_lost_parameters(model):
        retrack_parameters(all_layers(model))
    return found


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
    # Of a known shape: for an unknown one Keras may run the model twice.
    inputs = keras.tree.map_structure(
        lambda x: keras.KerasTensor([8 if d is None else d for d in x.shape], x.dtype),
        model.input,
    )
    for name, widths in counts.items():
        try:
            with reading.at(widths):
                call_without_values(model, inputs, training=True)
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
    config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    if not config.get("from_logits"):
        raise ArgumentError(
            "teacher='self' compares logits, and the model's loss does not say that "
            f"its outputs are some. Received: loss={loss!r}. Compile with a loss with "
            "from_logits=True, as keras.losses.SparseCategoricalCrossentropy("
            "from_logits=True), or leave teacher=None."
        )
