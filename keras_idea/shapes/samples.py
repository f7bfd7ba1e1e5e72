"""Data that a model is judged by: inputs alone, or with what they should give."""

import math
import os
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.methods.calibration import calling


def inputs_of(data: Any) -> Any:
    """The inputs of `(x, y)` or `(x, y, sample_weight)`; other data as they are."""
    inputs = data[0] if isinstance(data, tuple) and data else data
    if isinstance(inputs, (str, bytes, int, float, os.PathLike)):
        raise ArgumentError(
            "`data` must be samples of the model's inputs: arrays, (x, y), a dict of "
            f"arrays, or a dataset. Received: data={data!r}."
        )
    return inputs


def loss_of(model: keras.Model, data: Any, batch_size: int) -> float:
    """A compiled model's loss on data, in evaluation mode; infinity in place of NaN.

    Data are a tuple `(x, y)` or `(x, y, sample_weight)` of arrays, or batches of such
    tuples, as `evaluate` takes them. A KerasHub task's preprocessor is not asked.
    """
    if isinstance(data, tuple) and len(data) in (2, 3):
        x, y, *weight = data
        arguments = {"sample_weight": weight[0] if weight else None}
        arguments |= {"y": y, "batch_size": batch_size}
    elif isinstance(data, (dict, tuple)) or hasattr(data, "shape"):
        raise ArgumentError(
            "The loss needs targets: give `data` as a tuple (x, y) or (x, y, "
            "sample_weight) of arrays, or batches of such tuples. Received: "
            f"{type(data).__name__}."
        )
    else:
        x, arguments = data, {}
    # The base class's: a KerasHub task's own preprocesses what is data already.
    with calling(model, x):
        found = keras.Model.evaluate(model, x, **arguments, verbose=0, return_dict=True)
    loss = float(found["loss"])
    return math.inf if math.isnan(loss) else loss


def check_finite(loss: float, what: str) -> None:
    """Refuses to rank by losses that are not finite."""
    if not math.isfinite(loss):
        raise ArgumentError(
            f"The loss of {what} is not finite on these data, so that nothing can be "
            "ranked by it. Look for NaN in the data, and in the model's weights."
        )


def check_compiled(model: keras.Model, caller: str) -> None:
    """Refuses a model that is not compiled, or without a loss."""
    if not getattr(model, "compiled", False) or model.loss is None:
        raise ArgumentError(
            f"{caller} judges by the model's own loss, and model '{model.name}' has "
            "none. Call `model.compile(optimizer, loss=...)` first."
        )
