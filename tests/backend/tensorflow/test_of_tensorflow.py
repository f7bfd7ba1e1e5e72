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


def test_a_model_that_is_built_in_its_first_step(data):
    model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(4, 1, 2)
    model.fit(*data, epochs=4, batch_size=16, verbose=0, callbacks=[prune])
    assert model.layers[0].units == 4


class InOneStep(keras.Model):
    """A model whose layers its first step builds."""

    def __init__(self):
        super().__init__()
        self.up, self.down = keras.layers.Dense(16, "relu"), keras.layers.Dense(1)

    def call(self, x):
        return self.down(self.up(x))


@pytest.mark.filterwarnings("ignore:The config of InOneStep")
def test_a_refit_that_the_first_step_begins(data):
    """It runs the model, which Keras does outside of a replica. As `shrink`'s."""
    keras.utils.set_random_seed(0)
    model = InOneStep()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    method = ki.methods.Activation(data[0], refit=True)
    prune = ki.IdeaPruneCallback(4, 1, 1, method=method)
    model.fit(*data, batch_size=16, verbose=0, callbacks=[prune])
    keras.utils.set_random_seed(0)
    wide = InOneStep()
    wide(data[0][:1])
    small = ki.shrink(wide, {"neurons": 4}, data[0], refit=True)
    assert model.up.units == 4
    for fitted_one, expected in zip(model.weights, small.weights, strict=True):
        np.testing.assert_allclose(fitted_one, expected, atol=1e-6)


def in_a_loop(model, data, prune):
    """`train_on_batch`, by one who calls the hooks."""
    prune.set_model(model)
    prune.on_train_begin()
    prune.on_epoch_begin(0)
    for batch in range(6):
        prune.on_train_batch_begin(batch)
        model.train_on_batch(*data)
        prune.on_train_batch_end(batch, {})
    prune.on_epoch_end(0, {})
    prune.on_train_end()


def sequential():
    return keras.Sequential([keras.layers.Dense(16), keras.layers.Dense(1)])


@pytest.mark.daily()
@pytest.mark.parametrize("inside", [False, True])
def test_a_loop_whose_first_batch_builds_the_model(inside, data):
    """Also inside of another model's `fit`."""
    model = sequential()
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(4, 1, 2)
    if not inside:
        in_a_loop(model, data, prune)
    else:
        outer = keras.Sequential([keras.Input((5, 8)), keras.layers.Dense(1)])
        outer.compile("sgd", "mse")
        loop = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: in_a_loop(model, data, prune)
        )
        outer.fit(*data, verbose=0, callbacks=[loop])
    assert model.layers[0].units == 4


class Fails(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise RuntimeError("It fails.")


def test_a_fit_that_ends_before_its_first_step(data):
    """The next one, without the callback, prunes nothing."""
    model = sequential()
    model.compile("adam", "mse")
    with pytest.raises(RuntimeError, match="It fails"):
        model.fit(*data, verbose=0, callbacks=[ki.IdeaPruneCallback(4, 1, 2), Fails()])
    model.fit(*data, epochs=2, verbose=0)
    assert ki.find_ffns(model)[0].width == 16
    prune = ki.IdeaPruneCallback(4, 5, 2)
    model.fit(*data, epochs=2, verbose=0, callbacks=[prune])
    assert model.layers[0].units == 4


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
@pytest.mark.parametrize("built", [False, True])
def test_another_optimizer(data, built):
    inputs = keras.Input(data[0].shape[1:])
    layers = [inputs, keras.layers.Dense(16), keras.layers.Dense(1)]
    model = WithAnother(keras.Sequential(layers))
    model.compile("adam")
    if built:
        model(data[0][:1])
    words = "no step.*trained by something else"
    if built:  # else only the first step would say what is pruned
        words = "several optimizers.*`other` trains .*optimizer=other"
    with pytest.raises(RuntimeError, match=words):
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
