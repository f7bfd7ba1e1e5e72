"""Data that a model is judged by: inputs alone, or with what they should give."""

import math
import os
from collections.abc import Iterator
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.methods.calibration import calling, part_of, slices_of


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
    if _are_arrays(data):
        x, y, *weight = data
        arguments = {"sample_weight": weight[0] if weight else None}
        arguments |= {"y": y, "batch_size": batch_size}
    else:
        x, arguments = data, {}
    # The base class's: a KerasHub task's own preprocesses what is data already.
    with calling(model, x):
        logs = keras.Model.evaluate(model, x, **arguments, verbose=0, return_dict=True)
    loss = float(logs["loss"])
    return math.inf if math.isnan(loss) else loss


def batches_of(data: Any, num_samples: int, batch_size: int) -> Iterator[tuple]:
    """Yields (x, y, sample_weight or None) of each batch of at most so many samples.

    Data as of `loss_of`.
    """
    batches = slices_of(data, data[0], batch_size) if _are_arrays(data) else data
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
            raise ArgumentError(f"{_TARGETS} Received: batches of {_name(batch)}.")
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


def _are_arrays(data: Any) -> bool:
    """Whether data are arrays with targets, not batches of them; refuses others."""
    if isinstance(data, tuple) and len(data) in (2, 3):
        return True
    if isinstance(data, (dict, tuple)) or hasattr(data, "shape"):
        raise ArgumentError(f"{_TARGETS} Received: {_name(data)}.")
    return False


def _name(data: Any) -> str:
    return type(data).__name__


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
