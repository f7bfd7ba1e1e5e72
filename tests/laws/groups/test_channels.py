"""Which channels are found, and that a model without them computes the same."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.conv_nets import MODELS, drawn, normal, of, u_net
from tests.support.conv_nets_trained import OFF_THE_STOCK_PATH
from tests.support.helpers import to_numpy


def masked(model, kinds=("channels",)):
    """Zeroes, by hand, every other unit where it is read alone."""
    for group in ki.find_groups(model, kinds):
        for cut in group.outgoing_cuts():
            values = to_numpy(cut.variable)
            places = to_numpy(cut.spread(np.arange(group.hidden_dim) % 2 == 1))
            cut.variable.assign(np.where(places, 0, values))
    return model


# The laws have six of these; of the last three one cannot be called, saved or read so.
CASES = ("depthwise", "grouped", "residual", "dense net", "u-net", "transfer") + (
    "twins",
    "all channels first",
)
NETS = {n: net for n, net in {**MODELS, **OFF_THE_STOCK_PATH}.items() if n not in CASES}


@pytest.mark.parametrize("name", NETS)
def test_narrow_equals_masked(name, tmp_path):
    make, stay = NETS[name]
    keras.utils.set_random_seed(0)
    model = masked(drawn(make()))
    found = ki.find_groups(model, ["channels"])
    assert [group.width for group in found] == stay
    x = np.random.default_rng(1).normal(size=(3, *model.input_shape[1:]))
    x = x.astype("float32")
    expected = to_numpy(model(x))
    narrow = ki.compact(model)
    assert [g.hidden_dim for g in ki.find_groups(narrow, ["channels"])] == [
        n for n in stay if n > 1
    ]
    assert narrow.count_params() < model.count_params()
    size = np.abs(expected).max()
    np.testing.assert_allclose(to_numpy(narrow(x)) / size, expected / size, atol=1e-6)
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(narrow(x)))


class Centered(layers.Layer):
    """Divides by the number of channels."""

    def call(self, x):
        return x / x.shape[-1]


class Inverse(layers.Layer):
    """Infinite where a channel is pruned."""

    def call(self, x):
        return 1.0 / x


class Numbered(layers.Layer):
    def call(self, x):
        return layers.Reshape((9, 4))(x)


CONV = {"kernel_size": 3, "name": "conv"}
LEFT_OUT = {
    "an output": (lambda: [layers.Activation("relu")], "output of the model"),
    "mixed": (
        lambda: [layers.LayerNormalization(name="n"), layers.Conv2D(2, 1)],
        "LayerNormalization 'n' normalizes over it",
    ),
    "inverse": (lambda: [Inverse(), layers.Conv2D(2, 1)], "something is divided by it"),
    "in a Reshape made in a call": (
        lambda: [Numbered(), layers.Conv1D(2, 1)],
        "code holds its number",
    ),
    "NaN": (
        lambda: [normal(epsilon=0.0, name="n"), layers.Conv2D(2, 1)],
        "epsilon=0",
    ),
    "not read": (lambda: [layers.GlobalAveragePooling2D(name="g")], "output of the"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_left_out(name):
    make, reason = LEFT_OUT[name]
    model = of((5, 5, 2), layers.Conv2D(4, **CONV), *make())
    assert not ki.find_groups(model, ["channels"])
    assert reason in ki.explain(model).left_out["conv"]
    with pytest.raises(ValueError, match="no 'channels' that can be cut"):
        ki.shrink(model, {"channels": 0.5}, method="magnitude")


def test_code_that_computes_with_their_number_is_refused():
    model = of((5, 5, 2), layers.Conv2D(4, **CONV), Centered(), layers.Conv2D(2, 1))
    with pytest.raises(ValueError, match="channels of conv cannot be pruned"):
        ki.shrink(model, {"channels": 0.5}, method="magnitude")


def test_shrink_ranks_by_what_reads_them():
    model = drawn(u_net())
    names = [layer.name for layer in model.layers if hasattr(layer, "kernel")]
    first, second, third, last = (to_numpy(model.get_layer(n).kernel) for n in names)
    narrow = ki.shrink(model, {"channels": 0.5}, method="magnitude")
    of_first = np.square(second).sum((0, 1, 3)) + np.square(last).sum((0, 1, 3))[:4]
    stay = np.sort(np.argsort(of_first)[-2:])
    kernel = to_numpy(narrow.get_layer(names[0]).kernel)
    np.testing.assert_array_equal(kernel, first[..., stay])
