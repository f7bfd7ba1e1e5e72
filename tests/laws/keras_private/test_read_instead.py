"""What an elastic run knows of Keras's insides."""

import keras
import numpy as np

from keras_idea.keras_private.fit_figures import LossSums, evaluate_again
from keras_idea.keras_private.read_instead import (
    changed,
    names_of,
    reads,
    regularized,
    rematerialized,
)
from tests.support.helpers import to_numpy


def test_a_layer_reads_other_values():
    layer = keras.layers.Dense(3, use_bias=False, kernel_regularizer="l2")
    layer.build((None, 2))
    x = np.ones((1, 2), "float32")
    before, value = dict(vars(layer)), np.full((5, 3), 2.0, "float32")
    [name] = names_of(layer, layer.kernel)
    called = []
    changes = reads(
        layer,
        [(layer, name, lambda: keras.ops.convert_to_tensor(value))],
        lambda: called.append(1),
    )
    changes += regularized(layer.kernel, lambda kernel: kernel[:0])
    with changed(changes):  # of other inputs than it was built for
        outputs = to_numpy(layer(np.ones((1, 5), "float32")))
        assert to_numpy(layer.losses[0]) == 0.0
    assert outputs.tolist() == [[10.0] * 3] and called == [1]
    assert to_numpy(layer.losses[0]) > 0 and layer(x).shape == (1, 3)
    assert vars(layer).keys() == before.keys()


def test_rematerialized_layers_are_named():
    with keras.RematScope("full"):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="a")])
    assert rematerialized(model)[-1].endswith("a")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    assert rematerialized(model) == []


def test_sums_of_losses_and_held_out_data():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x, sums, again = np.arange(6.0).reshape(6, 1), [], []

    class Watch(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            function, read = self.model.train_function, LossSums(self.model)

            def step(*args):
                returned = function(*args)
                sums.append([float(to_numpy(part)) for part in read(returned)])
                return returned

            self.model.train_function = step

        def on_epoch_end(self, epoch, logs=None):
            again.append((evaluate_again(self.model)["loss"], logs["val_loss"]))

    given = {"batch_size": 4, "shuffle": False, "verbose": 0}
    model.fit(x, x, validation_data=(x[:3], x[:3]), callbacks=[Watch()], **given)
    losses = [model.evaluate(part, part, verbose=0) for part in (x[:4], x[4:])]
    np.testing.assert_allclose(
        sums, [[4 * losses[0], 4], [4 * losses[0] + 2 * losses[1], 6]], rtol=1e-5
    )
    assert again[0][0] == again[0][1]
