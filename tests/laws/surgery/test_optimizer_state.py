"""Every Keras optimizer goes through compaction, in `fit` and by `compact`."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.surgery import shrink_in_place
from keras_idea.surgery.optimizer_state import check_carriable
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, start_pruning, to_numpy
from tests.support.optimizers import OPTIMIZERS, WHOLE_MATRIX

o = keras.optimizers


def masked_model(optimizer, data, ffn=ki.PrunableGatedFFN):
    """A model half of whose neurons were pruned, with two more steps since."""
    keras.utils.set_random_seed(0)
    model = residual_model((16, 12), use_bias=True, ffn=ffn)
    model.compile(optimizer, "mse")
    prune = start_pruning(model, 6, 0, 1)
    for _ in range(4):
        model.train_on_batch(*data)
    prune.on_train_end()
    return model


@pytest.mark.parametrize("name", [*OPTIMIZERS, *WHOLE_MATRIX])
def test_the_next_steps_are_equal(name, data):
    make = {**OPTIMIZERS, **WHOLE_MATRIX}[name]
    masked, shrunk = masked_model(make(), data), masked_model(make(), data)
    optimizer = shrunk.optimizer
    narrow = ki.compact(masked)
    shrink_in_place(shrunk)
    assert shrunk.optimizer is optimizer
    sizes = [
        [int(np.prod(v.shape)) for v in m.optimizer.variables] for m in (shrunk, narrow)
    ]
    assert sum(sizes[0]) == sum(sizes[1])
    first = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    second = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    # The first loss is before the optimizer's step, the second after it.
    np.testing.assert_allclose(first, first[0], rtol=2e-5)
    np.testing.assert_allclose(second[1], second[2], rtol=2e-5)
    if name in OPTIMIZERS:
        np.testing.assert_allclose(second, second[0], rtol=2e-5)


@pytest.mark.parametrize("name", [*OPTIMIZERS, *WHOLE_MATRIX])
def test_of_dense_layers_too(name, data):
    """Which hold no mask: a step without the callback may bring neurons back."""
    make = {**OPTIMIZERS, **WHOLE_MATRIX}[name]
    masked, shrunk = (masked_model(make(), data, dense_gated) for _ in range(2))
    narrow = ki.compact(masked)
    shrink_in_place(shrunk)
    models = masked, narrow, shrunk
    outputs = [m.predict(data[0], verbose=0) for m in models]
    np.testing.assert_allclose(outputs[1:], [outputs[0]] * 2, rtol=1e-4, atol=1e-5)
    for one, other in zip(*(m.optimizer.variables for m in models[1:]), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    for _ in range(2):
        losses = [m.train_on_batch(*data) for m in models[1:]]
        np.testing.assert_allclose(*losses, rtol=2e-5)


def test_weight_decay_exclusions_are_carried(data):
    models = []
    for surgery in (lambda m: m, ki.compact, lambda m: shrink_in_place(m) and m):
        keras.utils.set_random_seed(0)
        model = residual_model((16,))
        model.build((None, 5, 8))
        optimizer = o.AdamW(0.01, weight_decay=0.5)
        (ffn,) = ki.find_ffns(model)
        optimizer.exclude_from_weight_decay(
            var_list=[ffn.layer.down_kernel], var_names=["gate"]
        )
        model.compile(optimizer, "mse")
        prune = start_pruning(model, 6, 0, 1)
        for _ in range(3):
            model.train_on_batch(*data)
        prune.on_train_end()
        models.append(surgery(model))
    for model in models:
        model.train_on_batch(*data)
    kept = np.flatnonzero(to_numpy(ki.find_ffns(models[0])[0].mask))
    wide = models[0].get_layer("ffn_0")
    for model in models[1:]:
        layer = model.get_layer("ffn_0")
        for name, axis in (("up_kernel", 1), ("gate_kernel", 1), ("down_kernel", 0)):
            expected = np.take(to_numpy(getattr(wide, name)), kept, axis)
            actual = to_numpy(getattr(layer, name))
            np.testing.assert_allclose(actual, expected, atol=1e-6)


class Odd(o.SGD):
    """Keeps one variable for all, in a list."""

    def build(self, variables):
        super().build(variables)
        self.odd = [self.add_variable((3,), name="odd_one")]


def test_an_optimizer_of_unknown_state_is_refused(data):
    model = residual_model((16,))
    model.compile(Odd(0.01), "mse")
    model.train_on_batch(*data)
    with pytest.raises(ValueError, match="Odd cannot be carried.*odd_one"):
        check_carriable(model.optimizer)
    with pytest.raises(ValueError, match="cannot be carried"):
        ki.compact(model)
