"""Other models of the same layers: never wrong, and right once compiled again."""

import keras
import numpy as np
import pytest

import keras_idea as ki


@pytest.fixture
def shared(data):
    """A model that was narrowed in `fit`, and two that have its FFN."""
    x, y = data
    inputs = keras.Input(x.shape[1:])
    hidden = ki.PrunableGatedFFN(16)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    extractor = keras.Model(inputs, hidden)
    extractor.predict(x, verbose=0)
    rival = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    rival.compile(keras.optimizers.Adam(0.01), "mse")
    rival.fit(x, y, verbose=0)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    prune = ki.IdeaPruneCallback(4, begin_step=1, prune_steps=3)
    model.fit(x, y, batch_size=16, epochs=2, callbacks=[prune], verbose=0)
    return extractor, rival


def test_what_was_traced_with_the_wide_shapes_is_never_silently_wrong(shared, data):
    extractor, _ = shared
    expected = keras.ops.convert_to_numpy(extractor(data[0]))
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(Exception, match="ndims"):
            extractor.predict(data[0], verbose=0)
        extractor.compile()
    found = extractor.predict(data[0], verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_optimizer_of_its_own_steps_once_compiled_again(shared, data):
    _, rival = shared
    rival.compile(keras.optimizers.Adam(0.01), "mse")
    losses = rival.fit(*data, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_an_optimizer_with_wide_slots_takes_no_step(shared, data):
    with pytest.raises(Exception, match="(?i)shape|size|ndims"):
        shared[1].fit(*data, verbose=0)
