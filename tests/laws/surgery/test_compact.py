"""What the laws do not say of `compact`: copies, further optimizers, shared layers."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, start_pruning, to_numpy
from tests.support.hub_models import batch, tiny_lm
from tests.support.hub_training import prune_at_random
from tests.support.masks import prune_by_hand
from tests.support.optimizers import OPTIMIZERS, WHOLE_MATRIX


def test_after_a_step_by_hand():
    """On jax a model still holds the values of `train_on_batch`, which no copy has."""
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((4,)), dense(6, "relu"), dense(2)])
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((3, 4), "float32"), np.zeros((3, 2), "float32"))
    up, bias, down, last = model.get_weights()
    up[:, 0] = bias[0] = down[0] = 0.0
    model.set_weights([up, bias, down, last])
    expected = [up[:, 1:], bias[1:], down[1:], last]
    for one, other in zip(ki.compact(model).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


class Net(keras.Model):
    """Of a config, which does not say all."""

    def __init__(self, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.drop = keras.layers.Dropout(rate, seed=1)
        self.up, self.down = keras.layers.Dense(12, "gelu"), keras.layers.Dense(8)

    def call(self, x):
        return self.drop(self.down(self.up(x)))

    def get_config(self):
        return {**super().get_config(), "rate": self.drop.rate}


X = np.random.default_rng(0).normal(size=(6, 8)).astype("float32")


def half_pruned(cls=Net):
    model = cls(rate=0.5)
    model(X)
    for ffn in ki.find_ffns(model):
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) % 2)
    return model


def test_a_copy_is_the_model_and_shares_nothing():
    model = half_pruned()
    model.compile("adam", "mse", metrics=[keras.metrics.MeanAbsoluteError()])
    model.train_on_batch(X, X)
    narrow, expected = ki.compact(model), to_numpy(model(X))
    assert [v.path for v in narrow.weights] == [v.path for v in model.weights]
    assert narrow.drop.rate == 0.5
    np.testing.assert_allclose(to_numpy(narrow(X)), expected, rtol=1e-5, atol=1e-6)
    losses = [each.train_on_batch(X, X) for each in (model, narrow)]
    np.testing.assert_allclose(*losses, rtol=1e-5)  # the same numbers are dropped
    counted = [set(map(id, each.metrics_variables)) for each in (model, narrow)]
    assert len(counted[1]) > 2 and counted[0].isdisjoint(counted[1])
    expected = to_numpy(model(X))
    for variable in [*narrow.trainable_variables, *narrow.optimizer.variables]:
        variable.assign(np.full(variable.shape, 0.25))
    np.testing.assert_array_equal(to_numpy(model(X)), expected)


def test_a_copy_that_computes_something_else_is_refused():
    """Code that knows one object, and no other of its config."""
    first = []

    class Single(Net):
        def call(self, x):
            y = super().call(x)
            return y if first[:1] in ([], [self]) else 2 * y

    model = half_pruned(Single)
    first.append(model)
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(model)
    expected = to_numpy(model(X))
    assert ki.compact(model, in_place=True) is model
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [6]
    np.testing.assert_allclose(to_numpy(model(X)), expected, rtol=1e-5, atol=1e-6)


def test_a_graph_with_a_variable_is_refused():
    """A copy of the graph would compute with the model's own variable."""
    inputs, dense = keras.Input((8,)), keras.layers.Dense(12)
    hidden = dense(inputs) + keras.ops.matmul(-inputs, dense.kernel)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    with pytest.raises(ValueError, match="graph holds a variable"):
        ki.shrink(model, {"neurons": 0.5}, method="magnitude")


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


MADE = {**OPTIMIZERS, **WHOLE_MATRIX}
OF_CASES = ("accumulated", "loss scale", "sgd", "momentum", "adamw", "amsgrad", "ftrl")


@pytest.mark.parametrize("name", [name for name in MADE if name not in OF_CASES])
def test_the_next_steps_are_equal(name, data):
    make = MADE[name]
    masked, shrunk = masked_model(make(), data), masked_model(make(), data)
    optimizer = shrunk.optimizer
    narrow = ki.compact(masked)
    assert ki.compact(shrunk, in_place=True) is shrunk
    assert shrunk.optimizer is optimizer
    sizes = [
        [int(np.prod(v.shape)) for v in m.optimizer.variables] for m in (shrunk, narrow)
    ]
    assert sum(sizes[0]) == sum(sizes[1])
    first = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    second = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    # The second loss is after the optimizer's step, in which moments bring zeros back.
    np.testing.assert_allclose(first, first[0], rtol=2e-5)
    np.testing.assert_allclose(second[1], second[2], rtol=2e-5)


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
QUIET = {"batch_size": 4, "shuffle": False, "verbose": 0}


@pytest.fixture
def lm():
    model = tiny_lm("llama3")
    model.compile(keras.optimizers.AdamW(1e-2), LOSS)
    return model


def tokens(model, size=16):
    return batch(model, np.random.default_rng(0), size=size)


def test_a_graph_that_shares_the_embedding_with_its_backbone(lm):
    x, _ = tokens(lm)
    prune_at_random(lm, 12)
    graph = keras.Model(lm.input, lm.output)
    narrow = ki.compact(graph)
    assert (
        narrow.count_params() == tiny_lm("llama3", intermediate_dim=12).count_params()
    )
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), graph.predict(x, verbose=0), atol=1e-5
    )


def test_ffns_that_are_left_out_would_be_wider(lm):
    x, y = tokens(lm)
    first = ki.find_ffns(lm)[0].name
    before = [to_numpy(variable) for variable in lm.variables]
    prune = ki.IdeaPruneCallback(12, 1, 2, groups=lambda ffn: ffn.name == first)
    with pytest.raises(ValueError, match="holds one intermediate_dim"):
        lm.fit(x, y, callbacks=[prune], **QUIET)
    for old, variable in zip(before, lm.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
