"""How important a method takes the units of a trained model to be, without training."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN, find_groups
from keras_idea.groups.state import Scoring
from keras_idea.keras_private.models import compile_arguments
from keras_idea.methods.calibration import Calibration, calling
from keras_idea.methods.method import Method
from keras_idea.shapes.samples import (
    batches_of,
    check_compiled,
    check_finite,
    inputs_of,
)
from keras_idea.step.pruner import NeuronPruner
from keras_idea.step.track import only_scored
from keras_idea.surgery.compact import narrowed


def unit_importance(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    data: Any,
    num_samples: int,
    batch_size: int,
) -> list[Any]:
    """One number a unit, shaped as the mask of each group: the larger, the better.

    Refuses a method that ranks nothing outside training.
    """
    samples = None
    if data is not None:
        samples = Calibration(inputs_of(data), num_samples, batch_size)
    importance = method.importance(model, groups, samples)
    if importance is None:
        _check_scored(model, method, data)
        batches = batches_of(data, num_samples, batch_size)
        importance = _mean_scores(model, groups, method, batches)
    shapes = [tuple(values.shape) for values in importance]
    wanted = [group.units_shape for group in groups]
    if shapes != wanted:
        raise ArgumentError(
            f"`importance` of method {method.name!r} must return one number for each "
            f"unit of {', '.join(group.name for group in groups)}: shapes {wanted}. "
            f"Received: shapes {shapes}."
        )
    for group, values in zip(groups, importance, strict=True):
        if not np.isfinite(ops.convert_to_numpy(values)).all():
            raise ArgumentError(
                f"`importance` of method {method.name!r} must be finite. Received: NaN "
                f"or infinity for {group.units} of {group.name}."
            )
    return importance


def _check_scored(model: keras.Model, method: Method, data: Any) -> None:
    """Refuses a method that scores nothing in a step, and a model without steps."""
    if method.decision_step(0, 1) is not None:
        raise ArgumentError(
            f"Method {method.name!r} decides during training, and ranks nothing before "
            "it. Use another method, or IdeaPruneCallback; a method of your own needs "
            "`importance`."
        )
    check_compiled(model, f"Method {method.name!r}")
    if data is None:
        raise ArgumentError(
            f"Method {method.name!r} needs `data` with targets to measure what is "
            "important: (x, y). Received: data=None."
        )


def _mean_scores(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    batches: Iterable[tuple],
) -> list[Any]:
    """The mean over batches of what a method scores in a step that moves no weight.

    The steps are those of training, dropout included, of a copy of the model.
    """
    copy, _ = narrowed(model, "shrink()")
    arguments = compile_arguments(model)
    names = ("loss", "loss_weights", "run_eagerly", "jit_compile")
    keras.Model.compile(
        copy,
        keras.optimizers.SGD(0.0),
        **{name: arguments[name] for name in names},
    )
    copy.optimizer.build(copy.trainable_variables)
    kinds = list(dict.fromkeys(group.kind for group in groups))
    tracks = [only_scored(group) for group in find_groups(copy, kinds)]
    how = method.scoring
    for track in tracks:  # the newest alone: their mean is taken here
        track.ffn.state.score_by(Scoring(0.0, how.row_reduce, how.matrix_reduce))
    pruner = NeuronPruner(tracks, method)
    pruner.attach(copy)
    totals = [np.zeros(tuple(track.scores.shape)) for track in tracks]
    count = 0
    for x, y, weight in batches:
        for track in tracks:
            # What is not measured, an expert without tokens, has no influence.
            track.scores.assign(ops.zeros(track.scores.shape))
        # The base class's method: a KerasHub task would preprocess the data again.
        with calling(copy, x):
            logs = keras.Model.train_on_batch(copy, x, y, weight, return_dict=True)
        if "loss" in logs:  # a train step of the user's may call it something else
            check_finite(float(logs["loss"]), f"model '{model.name}'")
        for total, track in zip(totals, tracks, strict=True):
            total += ops.convert_to_numpy(track.ffn.scores)
        count += 1
    pruner.detach(copy)
    if not count:
        raise ArgumentError("The calibration data hold no sample. Give at least one.")
    return [
        _among_all(group, track.ffn, total / count)
        for group, track, total in zip(groups, tracks, totals, strict=True)
    ]


def _among_all(group: FFN, copied: FFN, scores: np.ndarray) -> np.ndarray:
    """The importance of a group's units, by scores of its copy; of masked ones zero."""
    scores = scores.astype("float32")
    importance = ops.convert_to_numpy(copied.state.importance_of(scores))
    if not importance.any():
        raise ArgumentError(
            f"Nothing was measured of {group.name}: the loss on the `data` does not "
            "depend on its weights, or they are frozen. Use another method."
        )
    found = np.zeros(group.units_shape, "float32")
    np.put_along_axis(found, group.kept_neurons(), importance, axis=-1)
    return found
