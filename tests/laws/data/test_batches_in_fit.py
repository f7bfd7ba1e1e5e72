"""`fit` over `TokenBatches`: the same losses however it is interrupted."""

import json

import keras
import numpy as np
import pytest

from keras_idea.data import TokenBatches
from tests.support.helpers import LossRecorder
from tests.support.token_batches import DOCUMENTS, LENGTH, ids_of, make_cache


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("batches"), DOCUMENTS)


def tiny_model():
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((LENGTH,), dtype="int32"),
        keras.layers.Embedding(257, 8),
        keras.layers.Dense(257),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(0.01), loss)
    return model


def fit(model, dataset, steps, epochs=1):
    """The loss of every step."""
    recorder = LossRecorder()
    model.fit(
        dataset,
        steps_per_epoch=steps,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[recorder],
    )
    return recorder.losses


def test_a_resumed_fit_is_the_straight_one(cache, tmp_path):
    """20 steps, over an epoch's end; interrupted after 6 and after 16."""
    straight = tiny_model()
    losses = fit(straight, TokenBatches(cache, LENGTH, 4).dataset(), 20)
    model, seen = tiny_model(), []
    found = []
    for steps in (6, 10, 4):
        batches = TokenBatches(cache, LENGTH, 4)
        place = tmp_path / "position.json"
        start = batches.restore(json.loads(place.read_text())) if seen else 0
        found += fit(model, batches.dataset(start), steps)
        seen += [batches.sample_ids(start + s) for s in range(steps)]
        place.write_text(json.dumps(batches.position(start + steps)))
        # A new process has nothing but the files.
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for one, other in zip(model.weights, straight.weights, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
        )
    whole = ids_of(TokenBatches(cache, LENGTH, 4), 20)
    np.testing.assert_array_equal(np.concatenate(seen), whole)
    np.testing.assert_array_equal(np.sort(whole[:53]), np.arange(53))


def test_epochs_of_keras_go_on_in_the_row(cache):
    one, other = tiny_model(), tiny_model()
    dataset = TokenBatches(cache, LENGTH, 4).dataset()
    straight = fit(one, dataset, steps=12)
    np.testing.assert_allclose(fit(other, dataset, 4, epochs=3), straight, 1e-5)


def test_an_iterator_with_a_small_buffer(cache):
    import grain

    dataset = TokenBatches(cache, LENGTH, 4).dataset()
    straight = fit(tiny_model(), dataset, 5)
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    found = fit(tiny_model(), dataset.to_iter_dataset(options), 5)
    np.testing.assert_allclose(found, straight, 1e-6)
