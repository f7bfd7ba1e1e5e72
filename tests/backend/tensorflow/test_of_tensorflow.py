"""What TensorFlow alone has: data of unknown length, SavedModel, its checkpoints."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy

TARGET = 4


def adamw(accumulate=None):
    return keras.optimizers.AdamW(
        0.01, weight_decay=0.1, gradient_accumulation_steps=accumulate
    )


def fitted(data, compact, optimizer, steps=24):
    """A model pruned over the ends of two epochs, and the history of its three."""
    keras.utils.set_random_seed(0)
    model = residual_model((16,))
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(TARGET, steps // 4, steps // 2, compact=compact)
    return model, model.fit(data, epochs=3, verbose=0, callbacks=[prune]).history


@pytest.mark.daily()
def test_data_of_unknown_length(data, accumulate=2):
    """Where they end Keras counts a step in which nothing is trained; here none."""
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)  # 8 of them
    unknown = batches.filter(lambda x, y: True)
    assert tf.data.experimental.cardinality(unknown) < 0
    steps = 24 // (accumulate or 1)
    results = []
    for fed in (batches, unknown):
        model, history = fitted(fed, "off", adamw(accumulate), steps)
        assert int(model.optimizer.iterations) == steps
        results.append([*history.values(), *map(to_numpy, model.variables)])
    for known, other in zip(*results, strict=True):
        np.testing.assert_array_equal(known, other)
    assert ki.find_ffns(model)[0].width == TARGET


@pytest.mark.daily()
def test_saved_by_tensorflow(data, tmp_path):
    """Its lists and dicts can be saved only if nothing was taken out of them."""
    import tensorflow as tf

    optimizer = adamw()
    optimizer.exclude_from_weight_decay(var_names=["head"])
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)
    model, _ = fitted(batches, "end", optimizer)
    x = data[0]
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    answers = model.predict(x, verbose=0)
    np.testing.assert_allclose(exported.serve(x), answers, atol=1e-6)

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    path = checkpoint.save(tmp_path / "checkpoint")
    kept = [to_numpy(v) for v in (*model.variables, *optimizer.variables)]
    model.fit(batches, verbose=0)
    assert not np.array_equal(model.predict(x, verbose=0), answers)
    checkpoint.restore(path).assert_existing_objects_matched()
    now = [to_numpy(v) for v in (*model.variables, *optimizer.variables)]
    for before, after in zip(kept, now, strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("make", [lambda: sequential(), lambda: InOneStep()])
def test_a_model_that_its_first_step_would_build_is_rejected(make, data):
    model, x = make(), data[0]
    model.compile("adam", "mse")
    fit = {"epochs": 4, "batch_size": 16, "verbose": 0}
    with pytest.raises(ValueError, match="not built"):
        model.fit(*data, callbacks=[ki.IdeaPruneCallback(4, 1, 2)], **fit)
    model(x[:1])
    model.fit(*data, callbacks=[ki.IdeaPruneCallback(4, 1, 2)], **fit)
    assert ki.find_ffns(model)[0].hidden_dim == 4


def sequential():
    return keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(1)])


class InOneStep(keras.Model):
    """A model whose layers are built when it is called."""

    def __init__(self):
        super().__init__()
        self.up, self.down = keras.layers.Dense(16, "relu"), keras.layers.Dense(1)

    def call(self, x):
        return self.down(self.up(x))


class WithAnother(keras.Model):
    """A model whose own train step uses an optimizer of its own, as GANs do."""

    def __init__(self, net):
        super().__init__()
        self.net, self.other = net, keras.optimizers.SGD(0.1)

    def call(self, x):
        return self.net(x)

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.net(x) - y) ** 2)
        weights = self.net.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.other.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}


@pytest.mark.daily()
def test_another_optimizer(data):
    inputs = keras.Input(data[0].shape[1:])
    layers = [inputs, keras.layers.Dense(16), keras.layers.Dense(1)]
    model = WithAnother(keras.Sequential(layers))
    model.compile("adam")
    model(data[0][:1])
    with pytest.raises(RuntimeError, match="took 0"):
        model.fit(*data, verbose=0, callbacks=[ki.IdeaPruneCallback(4, 1, 2)])


@pytest.mark.daily()
def test_restored_outside_of_the_scope(data, tmp_path):
    """As `fit` is called: outside of its strategy's scope."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    batches = tf.data.Dataset.from_tensor_slices(data).batch(16)
    for epochs in (2, 4):
        with strategy.scope():
            inputs = keras.Input(data[0].shape[1:])
            layers = [inputs, keras.layers.Dense(16), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            model.compile("adam", "mse")
        checkpoint = ki.Checkpoint(tmp_path / "checkpoints")
        begun = checkpoint.restore(model)
        prune = ki.IdeaPruneCallback(4, 2, 2)
        fit = {"epochs": epochs, "initial_epoch": begun, "verbose": 0}
        model.fit(batches, callbacks=[prune, checkpoint], **fit)
    assert begun == 2 and model.layers[0].units == 4
