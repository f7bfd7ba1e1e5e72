"""KerasHub's image classifiers: their channels, and what their presets cannot hold."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_image_models import BACKBONES, SHAPE, image_classifier

REFUSED = ("HGNetV2 affine", "MiT")
PRUNED = [
    pytest.param(name, marks=() if name == "ResNet" else pytest.mark.daily())
    for name in BACKBONES
    if name not in REFUSED
]


def images(count=3):
    return np.random.default_rng(0).random((count, *SHAPE)).astype("float32")


def pruned(model, compact="off"):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-4), loss)
    prune = ki.IdeaPruneCallback(
        targets={"channels": 0.5}, begin_step=1, prune_steps=2, compact=compact
    )
    how = {"batch_size": 2, "verbose": 0, "shuffle": False}
    model.fit(images(8), np.arange(8) % 4, callbacks=[prune], **how)
    return model


def assert_same(some, others, tolerance):
    some, others = to_numpy(some), to_numpy(others)
    size = np.abs(others).max()
    np.testing.assert_allclose(some / size, others / size, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", PRUNED)
def test_pruned_as_a_functional_model(name, tmp_path):
    keras.utils.set_random_seed(0)
    task = image_classifier(name)
    model = ki.as_functional(task)
    x = images()
    assert_same(model(x, training=False), task(x, training=False), 1e-6)
    assert {type(layer).__module__.split(".")[0] for layer in model.layers} == {"keras"}
    masked = pruned(model)
    narrow = ki.compact(masked)
    assert narrow.count_params() < 0.6 * task.count_params()
    # Rounded: by CPU and backend up to 4.4e-6, as in hub/compare.py. EfficientNet
    # differs by 1e-15 in float64.
    assert_same(narrow(x, training=False), masked(x, training=False), 5e-6)
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(narrow(x)))


def test_the_task_itself_is_refused_before_a_step():
    task = image_classifier("ResNet")
    before = to_numpy(task.trainable_variables[0])
    reason = "Backbone does not hold its number.*as_functional"
    assert any("as_functional" in why for why in ki.explain(task).left_out.values())
    with pytest.raises(ValueError, match=reason):
        pruned(task)
    np.testing.assert_array_equal(to_numpy(task.trainable_variables[0]), before)
    with pytest.raises(ValueError, match=reason):
        ki.shrink(task, {"channels": 0.5}, method="magnitude")


def test_a_block_with_weights_of_its_own_is_refused():
    model = ki.as_functional(image_classifier("HGNetV2 affine"))
    with pytest.raises(ValueError, match="HGNetV2LearnableAffineBlock '.*' mixes"):
        pruned(model)
