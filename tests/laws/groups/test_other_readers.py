"""Neurons that something sees beside the way that a model is called without a word."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea.step.pruner import pruner_of

WIDTH, TARGET = 16, 4


@pytest.fixture
def xy():
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    return x, x[:, :3]


def fitted(model, xy, prune, **compiled):
    model.compile("adam", "mse", **compiled)
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    return model.fit(*xy, epochs=4, callbacks=[prune], **fit)


class InTraining(keras.Model):
    """A model that does more in training with its hidden activations."""

    def __init__(self, more):
        super().__init__()
        self.up, self.down = layers.Dense(WIDTH, "relu"), layers.Dense(3)
        self.aux, self.more = layers.Dense(3), more

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, WIDTH))
        self.aux.build((None, WIDTH))

    def call(self, x, training=None):
        hidden = self.up(x)
        if training and self.more == "a loss":
            self.add_loss(ops.mean(hidden**2))
        if training and self.more == "a mean":
            hidden = hidden - ops.mean(hidden, -1, keepdims=True)
        if training and self.more == "a head":
            return self.down(hidden) + 0.1 * self.aux(hidden)
        return self.down(hidden)


def in_training(more):
    model = InTraining(more)
    model.build((None, 8))
    return model


@pytest.mark.parametrize("more", ["a loss", "a mean"])
def test_what_only_training_does_is_looked_at(more):
    explained = ki.explain(in_training(more))
    assert not explained.taken and len(explained.left_out) == 3


@pytest.mark.filterwarnings("ignore:The config of InTraining")
def test_a_head_that_only_training_calls_is_narrowed_too(xy):
    model = in_training("a head")
    fitted(model, xy, ki.IdeaPruneCallback(TARGET, 8, 8))
    assert model.aux.kernel.shape == (TARGET, 3)


class Transposed(keras.layers.Layer):
    """Multiplies by another layer's kernel, the other way round."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def build(self, shape):
        pass

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.dense.kernel))


def transposed():
    inputs, tied = keras.Input((8,)), layers.Dense(WIDTH)
    hidden = tied(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, layers.Dense(3)(Transposed(tied)(hidden)))


def normed(first, second):
    return keras.Sequential([keras.Input((8,)), first, second])


def spectral(*arguments):
    return layers.SpectralNormalization(layers.Dense(*arguments))


@pytest.mark.parametrize(
    "make",
    [
        transposed,
        lambda: normed(spectral(WIDTH, "relu"), layers.Dense(3)),
        lambda: normed(layers.Dense(WIDTH, "relu"), spectral(3)),
    ],
    ids=["transposed", "normed", "normed reader"],
)
def test_a_kernel_that_a_layer_computes_with_is_left_out(make):
    explained = ki.explain(make())
    assert not explained.taken
    assert "a layer computes with its kernel" in explained.left_out.values()


def chained(*between):
    x = inputs = keras.Input((8,))
    for layer in (layers.Dense(WIDTH, "relu"), *between, layers.Dense(3)):
        x = layer(x)
    return keras.Model(inputs, x)


def twice():
    square = layers.Dense(WIDTH, "relu")
    return chained(square, square)


def lambda_of_the_reader():
    reader = layers.Dense(8)
    tied = layers.Lambda(lambda x: ops.matmul(x, ops.transpose(reader.kernel)))
    return chained(reader, tied)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (twice, "a layer reads the neurons that it makes"),
        (lambda_of_the_reader, "a layer computes with its kernel"),
        (
            lambda: chained(layers.Dropout(0.1, noise_shape=(None, WIDTH))),
            "Dropout 'dropout' reads or makes it",
        ),
    ],
    ids=["twice", "lambda", "dropout"],
)
def test_what_has_a_neurons_number_in_it_is_left_out(make, why):
    explained = ki.explain(make())
    assert not explained.taken and why in explained.left_out.values()


def test_another_method_after_an_exception_begins_without_its_probes(xy):
    def fail(epoch, logs):
        if epoch == 1:
            raise OSError

    histories = []
    for ended in (True, False):
        keras.utils.set_random_seed(0)
        model = chained()
        first = ki.IdeaPruneCallback(TARGET, 4, 12, method="learned_mask")
        model.compile("adam", "mse")
        failing = keras.callbacks.LambdaCallback(on_epoch_end=fail)
        fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
        with pytest.raises(OSError):
            model.fit(*xy, epochs=4, callbacks=[first, failing], **fit)
        if ended:
            first.on_train_end()
        prune = ki.IdeaPruneCallback(TARGET, 20, 6)
        histories.append(model.fit(*xy, epochs=3, callbacks=[prune], **fit).history)
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Training ended")
def test_a_learned_mask_that_was_stopped_says_what_it_lost(xy):
    model = chained()
    prune = ki.IdeaPruneCallback(TARGET, 4, 28, method="learned_mask")
    model.compile("adam", "mse")
    stop = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(model, "stop_training", True)
    )
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 4}
    model.fit(*xy, callbacks=[prune, stop], **fit)
    with pytest.warns(UserWarning, match="begins at step 8: what it has seen before"):
        model.fit(*xy, callbacks=[prune], **fit)


def test_a_layer_that_a_distiller_compares_is_left_out():
    def student():
        hidden = layers.Dense(WIDTH, "relu", name="hidden")
        return keras.Sequential([keras.Input((8,)), hidden, layers.Dense(3)])

    loss = keras.distillation.FeatureDistillation(
        "mse", teacher_layer_name="hidden", student_layer_name="hidden"
    )
    distiller = keras.distillation.Distiller(student(), student(), loss)
    (why,) = [w for path, w in ki.explain(distiller).left_out.items() if "hid" in path]
    assert why == "a loss of the Distiller reads it"


def test_a_block_that_a_distiller_compares_keeps_its_output(xy):
    def made():
        blocks = [
            keras.Sequential([layers.Dense(WIDTH, "relu"), layers.Dense(8)])
            for _ in range(2)
        ]
        return keras.Sequential([keras.Input((8,)), *blocks, layers.Dense(3)])

    student = made()
    student.compile("sgd", "mse")
    pair = ki.distiller(made(), student)
    prune = ki.IdeaPruneCallback(TARGET, 2, 2)
    pair.fit(*xy, batch_size=8, shuffle=False, callbacks=[prune], verbose=0)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(pair)] == [TARGET] * 2
    # Alone, it could lose the last block's output too.
    assert len(ki.find_ffns(student)) > 2


def test_a_layer_with_two_parents_is_one(xy):
    dense = [layers.Dense(WIDTH, "tanh"), layers.Dense(8)]
    encoder = keras.Sequential([keras.Input((8,)), *dense])
    inputs = keras.Input((8,))
    decoder = keras.Model(inputs, layers.Dense(3)(encoder(inputs)))
    model = keras.Model(inputs, decoder(inputs))
    model.encoder = encoder
    fitted(model, xy, ki.IdeaPruneCallback(0.25, 8, 8))
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 2]


def test_a_regularizer_of_pairs_is_warned_of(xy):
    pairs = keras.regularizers.OrthogonalRegularizer(0.1, mode="columns")
    model = normed(
        layers.Dense(WIDTH, "relu", kernel_regularizer=pairs), layers.Dense(3)
    )
    with pytest.warns(UserWarning, match="a mean over neurons or over pairs"):
        fitted(model, xy, ki.IdeaPruneCallback(TARGET, 8, 8))


@pytest.mark.parametrize("method", ["activation", "learned_mask"])
def test_a_sequential_model_is_measured(method, xy):
    model = normed(layers.Dense(WIDTH, "relu"), layers.Dense(3))
    fitted(model, xy, ki.IdeaPruneCallback(TARGET, 8, 8, method=method))
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [TARGET]


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras on torch takes steps one by one"
)
def test_an_execution_that_runs_past_the_first_measured_step_ends_the_run(xy):
    model = normed(layers.Dense(WIDTH, "relu"), layers.Dense(3))
    prune = ki.IdeaPruneCallback(TARGET, 1, 4, method="learned_mask")
    with pytest.raises(ValueError, match="measures from step 1 on, .* 8 at once"):
        fitted(model, xy, prune, steps_per_execution=8)
    assert pruner_of(model.optimizer) is None


@keras.saving.register_keras_serializable("tests")
class Block(keras.layers.Layer):
    """A block whose config holds the width of its FFN."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.up, self.down = layers.Dense(width, "relu"), layers.Dense(8)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, self.width))

    def call(self, x):
        return x + self.down(self.up(x))

    def get_config(self):
        return {**super().get_config(), "width": self.width}


def test_what_is_saved_between_two_milestones_loads(xy, tmp_path):
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(3)(Block(WIDTH)(inputs)))
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 4, 26, compact="progressive")
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0, "epochs": 4}
    model.fit(*xy, callbacks=[prune, saving], **fit)
    widths = []
    for epoch in (1, 2, 3, 4):
        loaded = keras.models.load_model(tmp_path / f"{epoch}.keras")
        widths.append(loaded.layers[1].width)
    assert widths[-1] == TARGET and len(set(widths)) > 2
