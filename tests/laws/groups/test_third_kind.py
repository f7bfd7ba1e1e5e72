"""A kind of units that this package does not know: a row, a finder, and its groups.

The features of an `Embedding` that one `Dense` reads. On TensorFlow its gradient is
sparse, and Adam then moves the rows that it has; under a pruner the gradient is
dense. So it is trained by SGD there, for which both are one step.
"""

import dataclasses

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._finding import find
from keras_idea._groups import kinds
from keras_idea._groups.cut import Cut
from keras_idea._keras.layers import set_input_dim
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
    """All of what a kind needs: `keras_idea._groups.kinds.Group`."""

    embedding: keras.layers.Embedding
    reader: keras.layers.Dense
    kind, preserves_zero, shown_by = "features", True, None

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


def test_narrow_equals_masked(tmp_path):
    masked, x, _ = trained("off")
    narrow, _, history = trained("progressive")
    assert narrow.layers[0].output_dim == TARGET
    assert narrow.layers[1].kernel.shape == (TARGET, 6)
    expected = to_numpy(masked(x))
    np.testing.assert_allclose(to_numpy(narrow(x)), expected, atol=1e-6)
    np.testing.assert_allclose(to_numpy(ki.compact(masked)(x)), expected, atol=1e-6)
    assert history.history["features"][-1] == TARGET
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_allclose(to_numpy(loaded(x)), expected, atol=1e-6)
