"""Ranks the units of a trained model with a pruning method."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN, find_groups
from keras_idea.groups.state import Scoring
from keras_idea.keras_private.models import compile_arguments
from keras_idea.methods.calibration import (
    Calibration,
    calling,
    part_of,
    slices_of,
)
from keras_idea.methods.method import Method
from keras_idea.step.pruner import NeuronPruner
from keras_idea.step.track import only_scored
from keras_idea.surgery.compact import narrowed


def inputs_of(data: Any) -> Any:
    """Returns the inputs of `(x, y)` or `(x, y, sample_weight)`, else the data."""
    inputs = data[0] if isinstance(data, tuple) and data else data
    if isinstance(inputs, (str, bytes, int, float, os.PathLike)):
        raise ArgumentError(
            "`data` must be samples of the model's inputs: arrays, (x, y), a dict of "
            f"arrays, or a dataset. Received: data={data!r}."
        )
    return inputs


def unit_importance(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    data: Any,
    num_samples: int,
    batch_size: int,
) -> list[Any]:
    """Returns the importance of each unit, in the shape of each group's mask.

    Raises if the method ranks nothing outside training.
    """
    samples = None
    if data is not None:
        samples = Calibration(inputs_of(data), num_samples, batch_size)
    importance = method.importance(model, groups, samples)
    if importance is None:
        _check_scored(model, method, data)
        importance = _mean_scores(model, groups, method, data, num_samples, batch_size)
    shapes = [tuple(values.shape) for values in importance]
    wanted = [group.units_shape for group in groups]
    if shapes != wanted:
        raise ArgumentError(
            f"`importance` of method {method.name!r} must return one number for each "
            f"unit: shapes {wanted}. Received: shapes {shapes}."
        )
    for group, values in zip(groups, importance, strict=True):
        if not np.isfinite(ops.convert_to_numpy(values)).all():
            raise ArgumentError(
                f"`importance` of method {method.name!r} must be finite. Received: NaN "
                f"or infinity for {group.units} of {group.name}."
            )
    return importance


def _check_scored(model: keras.Model, method: Method, data: Any) -> None:
    """Raises if a method scores nothing in a step, or if the model has no loss."""
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
    if data is None:
        raise ArgumentError(
            f"Method {method.name!r} needs `data` with targets: (x, y). Received: "
            "data=None."
        )


def _batches(data: Any, num_samples: int, batch_size: int) -> Iterator[tuple]:
    """Yields (x, y, sample_weight or None) of at most `num_samples` samples."""
    arrays = isinstance(data, tuple) and len(data) in (2, 3)
    if not arrays and (isinstance(data, (dict, tuple)) or hasattr(data, "shape")):
        raise ArgumentError(f"{_TARGETS} Received: {type(data).__name__}.")
    batches = slices_of(data, data[0], batch_size) if arrays else data
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            name = type(batch).__name__
            raise ArgumentError(f"{_TARGETS} Received: batches of {name}.")
        size = len(keras.tree.flatten(batch[0])[0])
        if size > num_samples:
            batch = part_of(tuple(batch), 0, num_samples)
        yield keras.utils.unpack_x_y_sample_weight(tuple(batch))
        num_samples -= size
        if num_samples <= 0:
            return


_TARGETS = (
    "The loss needs targets: give `data` as a tuple (x, y) or (x, y, sample_weight) of "
    "arrays, or batches of such tuples."
)


def _mean_scores(
    model: keras.Model,
    groups: Sequence[FFN],
    method: Method,
    data: Any,
    num_samples: int,
    batch_size: int,
) -> list[Any]:
    """Returns the mean over batches of a method's scores, with constant weights.

    The steps are those of training, dropout included, on a copy of the model.
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
    for track in tracks:  # no moving average: the mean is computed here
        track.ffn.state.score_by(Scoring(0.0, how.row_reduce, how.matrix_reduce))
    pruner = NeuronPruner(tracks, method)
    pruner.attach(copy)
    totals = [np.zeros(tuple(track.scores.shape)) for track in tracks]
    count = 0
    for x, y, weight in _batches(data, num_samples, batch_size):
        for track in tracks:
            # What is not measured, such as an expert without tokens, counts as 0.
            track.scores.assign(ops.zeros(track.scores.shape))
        # Not the method of a KerasHub task, which would preprocess the data again.
        with calling(copy, x):
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
