"""Evaluates a model again on the held-out data of a `fit` under way."""

from typing import Any

import keras
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter


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
