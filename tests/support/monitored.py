"""Models whose runs a Monitor watches."""

import keras

import keras_idea as ki
from tests.support.helpers import (
    residual_model,
    to_numpy,
)


def compiled(
    seed=0, hidden_dims=(16, 12), optimizer=None, ffn=ki.PrunableGatedFFN, **kwargs
):
    keras.utils.set_random_seed(seed)
    model = residual_model(hidden_dims, ffn=ffn)
    optimizer = optimizer or keras.optimizers.AdamW(RATE)
    model.compile(optimizer, "mse", **kwargs)
    return model


class Importances(keras.callbacks.Callback):
    """Importance and mask of every FFN at some steps, between two batches."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.seen = steps, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        step = 8 * self.epoch + batch
        if step in self.steps:
            self.seen[step] = {
                ffn.name: (to_numpy(ffn.importance()), to_numpy(ffn.mask))
                for ffn in ki.find_ffns(self.model)
            }


RATE = ki.CosineDecay(0.02, 1e-3, 24, 2)
