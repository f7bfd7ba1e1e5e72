"""What tests need to read the same numbers of a Keras before 3.15 as of a newer one."""

import functools

import keras
import pytest

OLDER = tuple(map(int, keras.__version__.split(".")[:2])) < (3, 15)
needs_3_15 = pytest.mark.skipif(OLDER, reason="an earlier Keras cannot make or read it")


def batches_have_losses_of_their_own():
    """Has `train_on_batch` and `test_on_batch` return the loss of their batch alone.

    Before Keras 3.15 it was the mean of all batches since metrics were last reset.
    """
    if not OLDER:
        return
    for name in ("train_on_batch", "test_on_batch"):
        setattr(keras.Model, name, _reset_first(getattr(keras.Model, name)))


def _reset_first(on_batch):
    @functools.wraps(on_batch)
    def called(self, *args, **kwargs):
        self.reset_metrics()
        return on_batch(self, *args, **kwargs)

    return called
