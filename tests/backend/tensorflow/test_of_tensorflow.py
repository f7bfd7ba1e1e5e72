"""What TensorFlow alone has: data of unknown length, SavedModel, its checkpoints."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's own data and files"
)
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


@pytest.mark.nightly(why="takes 6 s on tensorflow")
@pytest.mark.parametrize("accumulate", [None, 2])
def test_data_of_unknown_length(data, accumulate):
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


@pytest.mark.nightly(why="takes 5 s on tensorflow")
def test_narrowed_on_data_of_unknown_length(data):
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)
    _, known = fitted(batches, "end", adamw())
    model, history = fitted(batches.filter(lambda x, y: True), "end", adamw())
    assert history["width"] == known["width"] == [11, 4, 4]
    assert history["loss"][:2] == known["loss"][:2]  # then it is narrow, and Keras's
    assert ki.find_ffns(model)[0].hidden_dim == TARGET


@pytest.mark.nightly(why="takes 7 s on tensorflow")
@pytest.mark.parametrize("compact", ["off", "end"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_saved_by_tensorflow(data, tmp_path, compact, wrapped):
    """Its lists and dicts can be saved only if nothing was taken out of them."""
    import tensorflow as tf

    optimizer = adamw()
    optimizer.exclude_from_weight_decay(var_names=["head"])
    if wrapped:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(8)
    model, _ = fitted(batches, compact, optimizer)
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
