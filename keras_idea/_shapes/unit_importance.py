"""Ranks the units of a trained model with a pruning method."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._finding.find import FFN, find_groups
from keras_idea._groups.state import Scoring
from keras_idea._keras.models import compile_arguments
from keras_idea._step.algorithm import Track
from keras_idea._step.pruner import NeuronPruner
from keras_idea._surgery.compact import narrowed
from keras_idea.errors import ArgumentError
from keras_idea.methods.calibration import Batch, Samples
from keras_idea.methods.method import Method


def unit_importance(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    samples: Samples | None,
) -> list[Any]:
    """Returns the importance of each unit, in the shape of each group's mask.

    Raises if the method ranks nothing outside training, or if it is not finite.
    """
    importance = method.importance(model, groups, samples)
    if importance is None:
        importance = _mean_scores(model, groups, method, samples)
    for group, values in zip(groups, importance, strict=True):
        if not np.isfinite(ops.convert_to_numpy(values)).all():
            raise ArgumentError(
                f"`importance` of method {method.name!r} must be finite. Received: NaN "
                f"or infinity for {group.units} of {group.name}."
            )
    return importance


def _mean_scores(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    samples: Samples | None,
) -> list[Any]:
    """Returns the mean over batches of a method's scores, with constant weights.

    The steps are those of training, dropout included, on a copy of the model.
    """
    if method.decision_step(0, 1) is not None:
        raise ArgumentError(
            f"Method {method.name!r} decides during training. Use another method, or "
            "IdeaPruneCallback; a method of your own needs `importance`."
        )
    if not getattr(model, "compiled", False) or model.loss is None:
        raise ArgumentError(
            f"Method {method.name!r} needs the loss of '{model.name}'. Call "
            "`model.compile(optimizer, loss=...)` first."
        )
    copy = narrowed(model, "shrink()")
    arguments = compile_arguments(model)
    names = ("loss", "loss_weights", "run_eagerly", "jit_compile")
    keras.Model.compile(
        copy,
        keras.optimizers.SGD(0.0),
        **{name: arguments[name] for name in names},
    )
    copy.optimizer.build(copy.trainable_variables)
    kinds = list(dict.fromkeys(group.kind for group in groups))
    tracks = [Track(group) for group in find_groups(copy, kinds)]
    how = method.scoring
    for track in tracks:  # no moving average: the mean is computed here
        track.ffn.state.score_by(Scoring(0.0, how.row_reduce, how.matrix_reduce))
    pruner = NeuronPruner(tracks, method)
    pruner.attach(copy)
    totals = [np.zeros(tuple(track.scores.shape)) for track in tracks]
    count = 0
    for x, _, y, weight in samples or [Batch(None, {})]:
        if y is None:
            raise ArgumentError(
                f"Method {method.name!r} needs targets: give `data` as (x, y) or (x, "
                "y, sample_weight) of arrays, or batches of such tuples."
            )
        for track in tracks:
            # What is not measured, such as an expert without tokens, counts as 0.
            track.scores.assign(ops.zeros(track.scores.shape))
        # Not the method of a KerasHub task, which would preprocess the data again.
        logs = keras.Model.train_on_batch(copy, x, y, weight, return_dict=True)
        if not math.isfinite(logs.get("loss", 0.0)):  # a train step may rename it
            raise ArgumentError(
                f"The loss of '{model.name}' on `data` is not finite. Look for NaN in "
                "the data and in the model's weights."
            )
        for total, track in zip(totals, tracks, strict=True):
            total += ops.convert_to_numpy(track.ffn.scores)
        count += 1
    pruner.detach(copy)
    if not count:
        raise ArgumentError("The calibration data hold no sample. Give at least one.")
    found = []
    for group, track, total in zip(groups, tracks, totals, strict=True):
        mean = (total / count).astype("float32")
        found.append(ops.convert_to_numpy(track.ffn.state.importance_of(mean)))
        if not found[-1].any():
            raise ArgumentError(
                f"Nothing was measured of {group.name}: the loss on the `data` does "
                "not depend on its weights, or they are frozen. Use another method."
            )
    return found
