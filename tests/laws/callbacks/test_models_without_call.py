"""Models that only their `train_step` calls: VAE, masked autoencoder, SimSiam, GAN."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import PruningStopped
from tests.support.helpers import to_numpy
from tests.support.trained_only import (
    BACKEND,
    GAN,
    VAE,
    WIDTH,
    AutoEncoder,
)

TARGET, BEGIN, STEPS = 4, 3, 9
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(64, 8)).astype("float32")


def compiled(cls, optimizer="adam"):
    keras.utils.set_random_seed(0)
    model = cls()
    model.compile(optimizer)
    return model


def fitted(model, x, epochs=3, callbacks=(), begun=0, **options):
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, **options)
    callbacks = [prune, *callbacks]
    fit = {**FIT, "epochs": epochs, "initial_epoch": begun}
    return model.fit(x, callbacks=callbacks, **fit).history


def parts_of(model):
    """The models in a model, by name."""
    found = [part for part in model.layers if isinstance(part, keras.Model)]
    return {part.name: part for part in found}


def answers(part):
    shape = [2, *part.input_shape[1:]]
    inputs = np.random.default_rng(1).normal(size=shape).astype("float32")
    return to_numpy(keras.tree.flatten(part(inputs))[0])


def test_it_is_pruned_as_a_model_that_calls_the_same(x):
    """A functional model with the same weights, which Keras's own step trains."""
    model = compiled(AutoEncoder, keras.optimizers.SGD(0.1))
    inputs = keras.Input((8,))
    parts = [keras.models.clone_model(part) for part in parts_of(model).values()]
    twin = keras.Model(inputs, parts[1](parts[0](inputs)))
    twin.set_weights([to_numpy(v) for v in model.weights])
    twin.compile(keras.optimizers.SGD(0.1), "mse")
    history = fitted(model, x, compact="off")
    # What is between the two is found in the twin too.
    wide = {"groups": lambda ffn: ffn.hidden_dim > TARGET}
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off", **wide)
    told = twin.fit(x, x, epochs=3, callbacks=[prune], **FIT).history
    assert history["width"] == told["width"] == [5, 4, 4]
    others = [ffn for ffn in ki.find_ffns(twin) if ffn.hidden_dim > TARGET]
    for ffn, other in zip(ki.find_ffns(model), others, strict=True):
        np.testing.assert_array_equal(ffn.kept_neurons(), other.kept_neurons())
        assert ffn.hidden_dim == WIDTH and len(ffn.kept_neurons()) == TARGET
        pruned = np.setdiff1d(np.arange(WIDTH), ffn.kept_neurons())
        up, down = map(to_numpy, ffn.kernels)
        assert not up[:, pruned].any() and not down[pruned].any()
    for ours, theirs in zip(model.weights, twin.weights, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-6)


def test_a_run_is_resumed_to_the_last_random_number(x, tmp_path):
    """What is done before the first step, the trial too, draws none."""
    whole = fitted(compiled(VAE), x, epochs=4)["total"]
    fitted(compiled(VAE), x, 2, [ki.Checkpoint(tmp_path / "kept")])
    model, checkpoint = compiled(VAE), ki.Checkpoint(tmp_path / "kept")
    begun = checkpoint.restore(model)
    watch = ki.Monitor(tmp_path / "logs", update_every=1, neurons_every=1)
    rest = fitted(model, x, 4, [watch, checkpoint], begun)["total"]
    assert begun == 2 and whole[2:] == rest


@pytest.mark.skipif(BACKEND == "jax", reason="a jitted step holds one optimizer")
class TestSeveralOptimizers:
    """Pruning is part of the steps of `model.optimizer`."""

    def test_what_others_train_stops_the_run(self, x):
        model = GAN(True)
        with pytest.raises(PruningStopped, match="critic"):
            fitted(model, x)
        assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [WIDTH, WIDTH]

    def test_what_it_trains_is_pruned(self, x):
        """And the discriminator's weights are those of a masked run."""
        runs = []
        for compact in ("off", "end"):
            keras.utils.set_random_seed(0)
            model = GAN(True)
            only = {"groups": lambda ffn: ffn.name == "generator"}
            fitted(model, x, compact=compact, **only)
            runs.append([answers(part) for part in parts_of(model).values()])
        widths = {ffn.name: ffn.hidden_dim for ffn in ki.find_ffns(model)}
        assert widths == {"generator": TARGET, "critic": WIDTH}
        for masked, narrow in zip(*runs, strict=True):
            np.testing.assert_allclose(masked, narrow, atol=1e-5)
