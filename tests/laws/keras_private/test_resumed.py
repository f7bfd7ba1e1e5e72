"""A pass through the graphs of functional models that ends early, and goes on."""

import keras
import numpy as np
import pytest
from keras.src import backend

from keras_idea.keras_private.call_context import mask_of
from keras_idea.keras_private.resumed import PassEnd, resuming
from tests.support.helpers import to_numpy


class Noted(keras.layers.Layer):
    """Adds one. Notes its calls, and ends the pass in the one that it is told to."""

    noted, end = [], ""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x):
        Noted.noted.append(self.name)
        if self.name == Noted.end:
            raise PassEnd
        return x + 1.0


class Unmasking(Noted):
    """Takes the mask off its input, as `MultiHeadAttention` does."""

    def call(self, x):
        mask = mask_of(x)
        backend.set_keras_mask(x, None)
        x = super().call(x)
        return x if mask is None else x * keras.ops.cast(mask, x.dtype)[..., None]


def passes(model, x, ends):
    """What a whole pass returns, after those that end; how much these kept; calls."""
    kept, outputs, sizes = {}, None, []
    Noted.noted.clear()
    for end in [*ends, ""]:
        Noted.end = end
        with resuming(model, kept):
            try:
                outputs = model(x, training=False)
            except PassEnd:
                sizes.append([len(k.values) for k in kept.values()])
    assert kept == {} and "_run_through_graph" not in vars(model)
    found = [to_numpy(y) for y in keras.tree.flatten(outputs)]
    return found, sizes, "".join(Noted.noted)


def chained(kind):
    layers = [Noted(name=name) for name in "abcd"]
    if kind == "sequential":
        return keras.Sequential([keras.Input((3,)), *layers])
    x = inputs = keras.Input((3,))
    if kind == "a model in a model":
        inner = keras.Model(inputs, layers[2](layers[1](inputs)), name="inner")
        layers[1:3] = [inner]
    for layer in layers:
        x = layer(x)
    model = keras.Model(inputs, x)
    if kind != "in code":
        return model

    class Code(keras.Model):
        def __init__(self):
            super().__init__()
            self.body = model

        def call(self, x):
            return self.body(x) * 2.0

    return Code()


@pytest.mark.parametrize(
    "kind", ["functional", "sequential", "a model in a model", "in code"]
)
def test_a_pass_goes_on_where_the_last_one_ended(kind):
    x = np.ones((2, 3), "float32")
    model = chained(kind)
    expected = to_numpy(model(x))
    [found], sizes, calls = passes(model, x, "acd")
    assert calls == "a" + "abc" + "cd" + "d"
    np.testing.assert_array_equal(found, expected)
    # The inputs, which are given again, and one tensor; of the inner model, too.
    assert max(max(size) for size in sizes) == 2


def test_what_is_read_later_is_kept():
    """Two inputs, a tensor that skips calls, one that is returned, one that is not."""
    rng = np.random.default_rng(0)
    one, two = keras.Input((3,)), keras.Input((3,))
    a, b, c, d = (Noted(name=name) for name in "abcd")
    early = a(one)
    unread = keras.layers.ReLU()(early)
    middle = b(unread * two)
    late = c(middle - early)
    model = keras.Model([one, two], {"early": middle, "late": d(late) + two})
    x = [rng.standard_normal((2, 3)).astype("float32") for _ in "12"]
    expected = [to_numpy(y) for y in keras.tree.flatten(model(x))]
    found, sizes, calls = passes(model, x, "bcd")
    assert calls == "ab" + "bc" + "cd" + "d"
    assert sizes == [[4], [4], [4]]  # both inputs; then early and unread * two; ...
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_are_as_they_were_before_the_call():
    """Also of a tensor that has two names, as an idle layer returns its input."""
    x = np.array([[1, 2, 0], [3, 0, 0]])
    inputs = keras.Input((3,), dtype="int32")
    h = keras.layers.Embedding(4, 5, mask_zero=True)(inputs)
    same = keras.layers.Dropout(0.5)(h)
    middle = Unmasking(name="a")(same)
    model = keras.Model(inputs, Unmasking(name="b")(h) + middle)
    expected = to_numpy(model(x, training=False))
    [found], _, calls = passes(model, x, "bba")
    assert calls == "b" + "b" + "ba" + "a"
    np.testing.assert_array_equal(found, expected)


def test_types_stay():
    x = np.ones((2, 3), "float32")
    inputs = keras.Input((3,))
    cast = keras.ops.cast
    low = keras.layers.Dense(3, dtype="bfloat16")(inputs)
    whole, logical = cast(low * 4, "int32"), low > 0
    end = Noted(name="a", dtype="bfloat16", autocast=False)(low)
    model = keras.Model(inputs, [end, whole, logical])
    expected = model(x)
    kept = {}
    Noted.end = "a"
    with resuming(model, kept), pytest.raises(PassEnd):
        model(x)
    Noted.end = ""
    with resuming(model, kept):
        found = model(x)
    for one, other in zip(found, expected, strict=True):
        kind = keras.backend.standardize_dtype(one.dtype)
        assert kind == keras.backend.standardize_dtype(other.dtype)
        one, other = (to_numpy(cast(y, "float32")) for y in (one, other))
        np.testing.assert_array_equal(one, other)
