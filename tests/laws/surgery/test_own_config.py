"""Blocks of the user's own: their configs follow a narrowing, or a warning says so."""

import re
import warnings

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import Block

X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
FIT = {"batch_size": 8, "verbose": 0}
PRUNE = {"begin_step": 1, "prune_steps": 2}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Following(keras.layers.Layer):
    """Takes its FFN, and serializes it."""

    def __init__(self, ffn, **kwargs):
        super().__init__(**kwargs)
        self.ffn = ffn
        self.dropout = keras.layers.Dropout(0.1)

    def call(self, x):
        return x + self.dropout(self.ffn(x))

    def get_config(self):
        ffn = keras.saving.serialize_keras_object(self.ffn)
        return {**super().get_config(), "ffn": ffn}

    @classmethod
    def from_config(cls, config):
        ffn = keras.saving.deserialize_keras_object(config.pop("ffn"))
        return cls(ffn, **config)


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfGated(keras.layers.Layer):
    """Its own config holds the number of neurons of its plain FFN."""

    def __init__(self, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.norm = keras.layers.LayerNormalization()
        self.ffn = ki.GatedFFN(hidden_dim, use_bias=True)

    def call(self, x):
        return x + self.ffn(self.norm(x))

    def get_config(self):
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfDense(keras.layers.Layer):
    """As in Keras's examples: without `build` and `get_config`, which Keras makes."""

    def __init__(self, dim, ff_dim, scale=2, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.ffn = keras.Sequential(
            [keras.layers.Dense(ff_dim, activation="relu"), keras.layers.Dense(dim)]
        )
        self.dropout = keras.layers.Dropout(rate)

    def call(self, x):
        return x + self.dropout(self.ffn(x)) / self.scale


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Fixed(keras.layers.Layer):
    """Its FFN's width is in no config."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ffn = ki.PrunableGatedFFN(12)

    def build(self, shape):
        self.ffn.build(shape)

    def call(self, x):
        return x + self.ffn(x)


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class FixedDense(keras.layers.Layer):
    """The same of Dense layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.up, self.down = keras.layers.Dense(12, "relu"), keras.layers.Dense(8)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((*shape[:-1], 12))

    def call(self, x):
        return x + self.down(self.up(x))


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfHeads(keras.layers.Layer):
    """How wide its heads are is an argument, or follows from how many they are."""

    def __init__(self, dim, num_heads, key_dim=None, **kwargs):
        super().__init__(**kwargs)
        width = key_dim or dim // num_heads
        self.attention = keras.layers.MultiHeadAttention(num_heads, width)

    def call(self, x):
        return x + self.attention(x, x)


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Crossed(keras.layers.Layer):
    """A decoder's: its call takes two tensors, and it may need a mask."""

    def __init__(self, dim, hidden, needs_mask=False, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.hidden, self.needs_mask = dim, hidden, needs_mask
        self.up = keras.layers.Dense(hidden, "relu")
        self.down = keras.layers.Dense(dim)

    def call(self, x, context, mask=None):
        y = self.down(self.up(x + context))
        if self.needs_mask:
            y = y * keras.ops.cast(mask, y.dtype)
        return x + y

    def get_config(self):
        own = {"dim": self.dim, "hidden": self.hidden, "needs_mask": self.needs_mask}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class AroundCrossed(keras.layers.Layer):
    """Hands its own numbers on to the block in it."""

    def __init__(self, dim, hidden, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.hidden = dim, hidden
        self.block = Crossed(dim, hidden)

    def call(self, x, context):
        return self.block(x, context=context)

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "hidden": self.hidden}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Unseen(Crossed):
    """What it is called on is known to nobody: only its constructor tells of it."""

    def call(self, x, context):
        if isinstance(x, keras.KerasTensor) and x.shape[0] is not None:
            raise TypeError("no tensors without numbers")
        return super().call(x, context)

    def compute_output_spec(self, x, context):
        return keras.KerasTensor(x.shape, x.dtype)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((*shape[:-1], self.hidden))


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Mixing(keras.layers.Layer):
    """One number for two widths, as in MLP-Mixer and FNet."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        dense = keras.layers.Dense
        self.ffn = keras.Sequential([dense(dim, "gelu"), dense(dim)])

    def call(self, x):
        return x + self.ffn(x)

    def get_config(self):
        return {**super().get_config(), "dim": self.dim}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class ReadOnly(FixedDense):
    """Its width is a property, as in Keras's own layers, or lies somewhere else."""

    def __init__(self, ff_dim=12, apart=False, **kwargs):
        super().__init__(**kwargs)
        self._ff_dim, self.apart, self.numbers = ff_dim, apart, {"ff_dim": ff_dim}
        self.up = keras.layers.Dense(ff_dim, "relu")

    @property
    def ff_dim(self):
        return self.numbers["ff_dim"] if self.apart else self._ff_dim

    def build(self, shape):
        self.up.build(shape)
        self.down.build((*shape[:-1], self.ff_dim))

    def get_config(self):
        own = {"ff_dim": self.ff_dim, "apart": self.apart}
        return {**super().get_config(), **own}


BLOCKS = {
    "a read-only number": ReadOnly,
    "a layer": lambda: Following(ki.PrunableGatedFFN(12)),
    "a number": lambda: OfGated(12),
    "a number that Keras notes": lambda: OfDense(8, 12),
    "the number of something else too": lambda: OfDense(8, 12, scale=12),
}
IN_VAIN = "The config of .* makes layers of another width"


def around(block):
    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1)(block(inputs)))
    model.compile("adam", "mse")
    return model


def prune(model, compact):
    callback = ki.IdeaPruneCallback(4, **PRUNE, compact=compact)
    model.fit(X, X[:, :1], epochs=2, callbacks=[callback], **FIT)


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_config_follows_and_the_file_loads(kind, compact, tmp_path):
    model = around(BLOCKS[kind]())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=IN_VAIN)
        prune(model, compact)
        narrow = ki.compact(model)
    expected = model.predict(X, verbose=0)
    for name, saved in (("model", model), ("narrow", narrow)):
        saved.save(tmp_path / f"{name}.keras")
        loaded = keras.models.load_model(tmp_path / f"{name}.keras")
        found = loaded.predict(X, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        widths = [ffn.width for ffn in ki.find_ffns(loaded)]
        assert widths == [ffn.width for ffn in ki.find_ffns(model)] and 4 in widths
    assert {ffn.hidden_dim for ffn in ki.find_ffns(narrow)} == {4}


def test_a_block_that_makes_a_prunable_layer_follows_until_it_is_compacted(tmp_path):
    """Then it holds a plain one, which its config does not make."""
    model = around(Block(12))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=IN_VAIN)
        prune(model, "end")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found, expected = (m.predict(X, verbose=0) for m in (loaded, model))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.warns(UserWarning, match=IN_VAIN):
        narrow = ki.compact(model)
    narrow.save(tmp_path / "narrow.keras")
    with pytest.raises(ValueError):
        keras.models.load_model(tmp_path / "narrow.keras")


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("block", [Fixed, FixedDense, ReadOnly])
def test_a_config_that_cannot_follow_is_told(block, compact, tmp_path):
    said = rf"The config of {block.__name__} '.*' makes"
    model = around(block(apart=True) if block is ReadOnly else block())
    if compact == "end":
        with pytest.warns(UserWarning, match=said):
            prune(model, compact)
    else:
        prune(model, compact)
    with pytest.warns(UserWarning, match=said):
        narrow = ki.compact(model)
    # It is so.
    narrow.save(tmp_path / "narrow.keras")
    with pytest.raises(ValueError):
        keras.models.load_model(tmp_path / "narrow.keras")


def crossing(kind):
    two = [keras.Input((8,)), keras.Input((8,))]
    mask = keras.Input((1,))
    if kind == "two tensors":
        inputs, x = two, Crossed(8, 12)(*two)
    elif kind == "a mask":
        inputs, x = [*two, mask], Crossed(8, 12, True)(*two, mask=mask)
    elif kind == "a block in a block":
        inputs, x = two, AroundCrossed(8, 12)(*two)
    else:
        inputs, x = two, Unseen(8, 12)(*two)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse")
    return model


@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer")
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize("kind", ["two tensors", "a mask", "a block in a block"])
def test_a_config_follows_whatever_a_block_is_called_on(kind, tmp_path):
    model = crossing(kind)
    x = [X, X[::-1].copy(), (X[:, :1] > 0).astype("float32")][: len(model.inputs)]
    callback = ki.IdeaPruneCallback(4, **PRUNE)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=IN_VAIN)
        model.fit(x, X[:, :1], epochs=2, callbacks=[callback], **FIT)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [ffn.hidden_dim for ffn in ki.find_ffns(loaded)] == [4]
    found, expected = (m.predict(x, verbose=0) for m in (loaded, model))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("block", [lambda: Mixing(8), lambda: FixedDense()])
def test_what_will_not_load_is_told_before_the_first_step(block, tmp_path):
    """And what the warning advises is so: masked, the file loads, and is narrowed."""
    model, steps = around(block()), []
    count = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(batch)
    )
    callback = ki.IdeaPruneCallback(4, **PRUNE)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=IN_VAIN)
        with pytest.raises(UserWarning, match="compact='off'"):
            model.fit(X, X[:, :1], epochs=2, callbacks=[callback, count], **FIT)
    assert not steps
    model = around(block())
    prune(model, "off")
    model.save(tmp_path / "masked.keras")
    loaded = keras.models.load_model(tmp_path / "masked.keras")
    with pytest.warns(UserWarning, match=IN_VAIN):
        narrow = ki.compact(loaded)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [4]
    found, expected = (m.predict(X, verbose=0) for m in (narrow, model))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer")
@pytest.mark.parametrize("key_dim", [2, None])
def test_a_config_of_heads_follows_where_their_width_is_an_argument(key_dim, tmp_path):
    inputs = keras.Input((3, 8))
    outputs = keras.layers.Dense(1)(OfHeads(8, 4, key_dim)(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    x = np.random.default_rng(1).normal(size=(16, 3, 8)).astype("float32")
    callback = ki.IdeaPruneCallback(targets={"kv_groups": 2}, **PRUNE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, x[..., :1], epochs=2, callbacks=[callback], **FIT)
    said = [str(w.message) for w in caught if re.match(IN_VAIN, str(w.message))]
    model.save(tmp_path / "model.keras")
    if key_dim is None:
        (warning,) = said
        assert "key_dim" in warning
        with pytest.raises(ValueError):
            keras.models.load_model(tmp_path / "model.keras")
        return
    assert not said
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found, expected = (m.predict(x, verbose=0) for m in (loaded, model))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [group.width for group in ki.find_groups(loaded, ["kv_groups"])] == [2]


def test_an_error_of_loading_names_the_block_s_config(tmp_path):
    model = around(Fixed())
    with pytest.warns(UserWarning, match=IN_VAIN):
        prune(model, "end")
    model.save(tmp_path / "pruned.keras")
    with pytest.raises(ValueError, match=re.escape("the width of its own config")):
        keras.models.load_model(tmp_path / "pruned.keras")


class Stepping(keras.Model):
    """As in Keras's guide on what happens in `fit`."""

    def train_step(self, *arguments):
        return super().train_step(*arguments)


def test_a_functional_model_with_a_train_step_of_its_own_is_compacted():
    plain = around(ki.PrunableGatedFFN(12))
    model = Stepping(plain.inputs, plain.outputs, name="stepping")
    model.compile("adam", "mse")
    prune(model, "off")
    narrow = ki.compact(model)
    assert type(narrow) is Stepping and narrow.name == "stepping"
    assert narrow.layers[1].hidden_dim == 4
    expected = model.predict(X, verbose=0)
    np.testing.assert_allclose(narrow.predict(X, verbose=0), expected, atol=1e-6)
    # The optimizer came along: the next epochs are equal.
    losses = [m.fit(X, X[:, :1], shuffle=False, **FIT) for m in (model, narrow)]
    first, second = (history.history["loss"] for history in losses)
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_two_pruning_callbacks_are_refused():
    model = around(ki.PrunableGatedFFN(12))
    both = [ki.IdeaPruneCallback(n, **PRUNE) for n in (8, 4)]
    with pytest.raises(ValueError, match="One `fit` takes one IdeaPruneCallback"):
        model.fit(X, X[:, :1], epochs=2, callbacks=both, **FIT)
