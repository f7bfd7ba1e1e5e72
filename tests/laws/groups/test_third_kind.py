"""A kind of units that this package does not know: a row, a finder, and its groups.

The features of an `Embedding` that one `Dense` reads. On TensorFlow its gradient is
sparse, and Adam then moves the rows that it has; under a pruner the gradient is
dense. So it is trained by SGD there, for which both are one step.
"""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

import keras_idea as ki
from keras_idea.callbacks.monitor.bands import bands
from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.finding import find
from keras_idea.groups import kinds
from keras_idea.groups.cut import Cut
from keras_idea.keras_private.layers import set_input_dim
from tests.support.helpers import to_numpy

FULL, TARGET, VOCABULARY = 8, 3, 11
FEATURES = kinds.Kind(
    name="features",
    unit="feature",
    holder="embedding",
    layers="embeddings",
    width="embedding features",
    short="features",
)


@dataclasses.dataclass(frozen=True)
class Features:
    """All of what a kind needs: `keras_idea.groups.kinds.Group`."""

    embedding: keras.layers.Embedding
    reader: keras.layers.Dense
    kind, preserves_zero, probed = "features", True, None

    @property
    def layers(self):
        return [self.embedding, self.reader]

    @property
    def makers(self):
        return [self.embedding]

    @property
    def readers(self):
        return [self.reader]

    @property
    def reader_bias(self):
        return self.reader.bias

    @property
    def hidden_dim(self):
        return self.embedding.embeddings.shape[1]

    def cuts(self):
        return [Cut(self.embedding.embeddings, 1), Cut(self.reader.kernel, 0)]

    own_cuts = held_cuts = cuts

    def set_hidden_dim(self, hidden_dim):
        self.embedding.output_dim = hidden_dim
        set_input_dim(self.reader, hidden_dim)


def find_features(model):
    embedding, reader = model.get_layer("embedding"), model.get_layer("reader")
    return [find.FFN(embedding.path, embedding, Features(embedding, reader))]


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "features", FEATURES)
    monkeypatch.setitem(find.FINDERS, "features", find_features)


def model_and_data():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(VOCABULARY, FULL, name="embedding"),
            layers.Dense(6, name="reader"),
            layers.LayerNormalization(),
            layers.Dense(VOCABULARY, name="head"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sparse = keras.backend.backend() == "tensorflow"
    optimizer = keras.optimizers.SGD(0.1) if sparse else keras.optimizers.AdamW(1e-2)
    model.compile(optimizer, loss)
    x = np.random.default_rng(0).integers(0, VOCABULARY, (16, 5), dtype="int32")
    return model, x, (x * 3 + 1) % VOCABULARY


def pruned(compact):
    targets = {"features": TARGET}
    told = {"begin_step": 1, "prune_steps": 5, "targets": targets}
    return ki.IdeaPruneCallback(**told, compact=compact)


def trained(compact, *callbacks, verbose=0):
    model, x, y = model_and_data()
    every = [pruned(compact), *callbacks]
    history = model.fit(x, y, 4, 2, verbose, every, shuffle=False)
    return model, x, history


def test_is_found_and_explained():
    model, *_ = model_and_data()
    (group,) = ki.find_groups(model, ["features"])
    assert (group.kind, group.hidden_dim, group.units) == ("features", FULL, "features")
    assert ki.explain(model).groups["features"] == {group.name: FULL}
    assert "embedding" in str(ki.explain(model)) and "8 features" in str(
        ki.explain(model)
    )
    with pytest.raises(ValueError, match="'kv_groups', 'channels', 'features'"):
        ki.find_groups(model, ["fetures"])


def test_is_ranked_by_algorithm_1():
    """The first scores are 0.6 |gradient x weight|, a mean over the rows of a unit."""
    model, x, y = model_and_data()
    model.optimizer.learning_rate = 0.0
    weights = [w.astype("float64") for w in model.get_weights()[:2]]
    step = 1e-3
    prune = ki.IdeaPruneCallback(
        begin_step=1, prune_steps=1, targets={"features": TARGET}, compact="off"
    )
    importance = np.zeros(FULL)
    for place, (weight, axis) in enumerate(zip(weights, (1, 0), strict=True)):
        means = np.zeros(FULL)
        for at in np.ndindex(weight.shape):
            losses = []
            for sign in (1, -1):
                moved = [np.array(w) for w in model.get_weights()]
                moved[place][at] += sign * step
                losses.append(loss_of(moved, x[:4], y[:4]))
            gradient = (losses[0] - losses[1]) / (2 * step)
            means[at[axis]] += abs(gradient * weight[at]) / weight.shape[1 - axis]
        importance = np.maximum(importance, means)
    model.fit(x[:4], y[:4], 4, 2, 0, [prune])
    (group,) = ki.find_groups(model, ["features"])
    best = np.sort(np.argsort(importance)[-TARGET:])
    np.testing.assert_array_equal(group.kept_neurons(), best)


def loss_of(weights, x, y):
    """The model's loss in float64: embedding, reader, normalization, head."""
    table, kernel, bias, gamma, beta, head, head_bias = (
        np.asarray(w, "float64") for w in weights
    )
    hidden = table[x] @ kernel + bias
    centered = hidden - hidden.mean(-1, keepdims=True)
    deviation = np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-3)
    logits = (centered / deviation * gamma + beta) @ head + head_bias
    logits -= logits.max(-1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, y[..., None], -1).mean()


@pytest.mark.parametrize("compact", ["end", "progressive"])
def test_narrow_equals_masked(compact, tmp_path):
    masked, x, _ = trained("off")
    narrow, _, history = trained(compact)
    assert narrow.layers[0].output_dim == TARGET
    assert narrow.layers[1].kernel.shape == (TARGET, 6)
    expected = to_numpy(masked(x))
    np.testing.assert_allclose(to_numpy(narrow(x)), expected, atol=1e-6)
    np.testing.assert_allclose(to_numpy(ki.compact(masked)(x)), expected, atol=1e-6)
    assert history.history["features"][-1] == TARGET
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_allclose(to_numpy(loaded(x)), expected, atol=1e-6)


def test_goes_on_from_a_checkpoint(tmp_path):
    class Killed(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if int(ops.convert_to_numpy(self.model.optimizer.iterations.value)) == 6:
                raise InterruptedError

    whole, x, _ = trained("end")
    with pytest.raises(InterruptedError):
        trained("end", ki.Checkpoint(tmp_path / "kept"), Killed())
    checkpoint = ki.Checkpoint(tmp_path / "kept")
    resumed, x, y = model_and_data()
    assert (epoch := checkpoint.restore(resumed)) == 1
    callbacks = [pruned("end"), checkpoint]
    resumed.fit(x, y, 4, 2, 0, callbacks, shuffle=False, initial_epoch=epoch)
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_is_seen(tmp_path, capsys):
    pytest.importorskip("tensorboard")
    trained("end", ki.Monitor(tmp_path / "logs", update_every=1), verbose=2)
    assert list((tmp_path / "logs").rglob("*tfevents*"))
    assert "embedding features" in capsys.readouterr().out
    lives = NeuronLives("a", np.array([1]), np.ones((1, 8), "uint8"), "features")
    assert bands([lives])[0].title.startswith("a: 8 features")
    assert bands([lives] * 20)[0].title.startswith("20 embeddings together")


def test_in_shrink():
    """By the norm of a unit's weights; and within a budget that a search keeps."""
    model, x, y = model_and_data()
    narrow = ki.shrink(model, {"features": TARGET}, method="magnitude")
    assert narrow.layers[0].output_dim == TARGET
    table, kernel = model.get_weights()[:2]
    stay = np.sort(np.argsort((table**2).sum(0) + (kernel**2).sum(1))[-TARGET:])
    np.testing.assert_array_equal(narrow.get_weights()[0], table[:, stay])
    found = ki.search(
        model,
        (x, y),
        target_parameters=model.count_params() - 17,
        kinds=["features"],
        batch_size=4,
        verbose=0,
    )
    assert found[0].targets == {"features": FULL - 1}
