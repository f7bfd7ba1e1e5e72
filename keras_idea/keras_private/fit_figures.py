"""What a `fit` under way knows of its losses and its held-out data."""

from typing import Any

import keras
from keras import ops
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter


class LossSums:
    """Reads, after a train step, the sum of the losses of an epoch and their weight.

    Keras shows their quotient, the mean. On jax they are among what the train function
    returns, and are given to the next step, which overwrites them: copies are read.
    Nothing waits for the device. Seen with Keras 3.15.1.
    """

    def __init__(self, model: keras.Model) -> None:
        tracker = model._loss_tracker
        self._variables = [] if tracker is None else [tracker.total, tracker.count]
        metrics = list(map(id, model.metrics_variables))
        self._places = [metrics.index(id(v)) for v in self._variables]

    def __call__(self, returned: Any = None) -> tuple[Any, Any] | None:
        """The two sums, of what a train function has returned; None: none are kept.

        Without it, of a model that is in sync.
        """
        if not self._variables:
            return None
        if keras.backend.backend() == "jax" and returned is not None:
            metrics = returned[1][-1]
            values = [metrics[place] for place in self._places]
        else:
            values = [variable.value for variable in self._variables]
        total, count = map(ops.copy, values)
        return total, count


def evaluate_again(model: keras.Model) -> dict[str, Any]:
    """Evaluates a model on the held-out data of the `fit` under way, from the first.

    `fit` evaluates so itself; with `validation_steps` it resumes where it has stopped,
    as it will afterwards. KerasHub's tasks set these, to all batches.
    """
    iterator = model._eval_epoch_iterator
    before = iterator._current_iterator, iterator._steps_seen
    iterator._current_iterator, iterator._steps_seen = None, 0
    try:
        found = model.evaluate(
            return_dict=True, verbose=0, _use_cached_eval_dataset=True
        )
    finally:
        iterator._current_iterator, iterator._steps_seen = before
    return dict(found)


def why_not_again(model: keras.Model) -> str | None:
    """Why held-out data cannot be used again from the first; None: they can."""
    iterator = getattr(model, "_eval_epoch_iterator", None)
    if iterator is None:
        return "there is none"
    if isinstance(iterator.data_adapter, GeneratorDataAdapter):
        return "it is a generator, which gives other batches each time"
    if isinstance(iterator.data_adapter, PyDatasetAdapter) and iterator.steps_per_epoch:
        return "it is a PyDataset, and `validation_steps` takes the next batches"
    return None
