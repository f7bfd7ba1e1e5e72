"""What reads channels is fitted as `numpy.linalg.lstsq` fits it, in float64."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from keras_idea.methods.calibration import Calibration
from keras_idea.methods.method import Decision
from keras_idea.surgery.refit import carry_out_and_refit
from tests.laws.groups.test_channels_by_activation import images
from tests.laws.shapes.test_refit import chosen
from tests.support.conv_nets import MODELS, drawn, of
from tests.support.conv_nets_trained import OFF_THE_STOCK_PATH
from tests.support.helpers import to_numpy

SAMPLES, MANY = 24, 192


def masked_and_fitted(model, x, masks):
    """Masks channels in place, group by group."""
    groups = ki.find_groups(model, ["channels"])
    assert len(groups) == len(masks)
    decisions = [
        (group, Decision(np.array(mask, "float32")))
        for group, mask in zip(groups, masks, strict=True)
    ]
    carry_out_and_refit(model, decisions, Calibration(x, len(x), 6))


def rows_of(mask, places):
    """The rows of a kernel that covers so many places, of channels that stay."""
    return np.flatnonzero(np.tile(np.array(mask), places))


class Held:
    """A layer's kernel as a matrix, and its bias, before a fit: what fits them."""

    def __init__(self, layer, swaps=False):
        self.layer, self.swaps = layer, swaps
        self.kernel, self.bias = self.now()

    def now(self):
        *_, kernel, bias = (to_numpy(v).astype("float64") for v in self.layer.weights)
        kernel = np.swapaxes(kernel, -1, -2) if self.swaps else kernel
        return kernel.reshape(-1, kernel.shape[-1]), bias

    def check(self, hidden, kept, made=None):
        """The layer, where it still makes something, is what NumPy fits.

        Returns that kernel and bias.
        """
        expected = chosen(hidden, self.kernel, kept, self.bias)
        assert np.abs(expected[:-1] - self.kernel[kept]).max() > 0.01
        kernel, bias = self.now()
        makes = np.ones(len(bias), bool) if made is None else np.array(made, bool)
        found = kernel[kept][:, makes]
        np.testing.assert_allclose(found, expected[:-1, makes], atol=2e-4)
        np.testing.assert_allclose(bias[makes], expected[-1, makes], atol=2e-4)
        assert not np.delete(kernel, kept, axis=0).any()
        return expected[:-1], expected[-1]


def test_one_layer_on_what_the_cut_one_gives_it():
    """A convolution with strides, then a Dense layer that reads all of its places."""
    first = layers.Conv2D(6, 3, activation="tanh")
    second, head = layers.Conv2D(4, 2, strides=2, activation="tanh"), layers.Dense(3)
    model = drawn(of((6, 6, 2), first, second, layers.Flatten(), head))
    x = images(model, SAMPLES)
    one = to_numpy(first(x)).astype("float64")
    hidden = np.stack(
        [
            one[:, i : i + 2, j : j + 2].reshape(SAMPLES, -1)
            for i in (0, 2)
            for j in (0, 2)
        ],
        axis=1,
    )
    held = [Held(second), Held(head)]
    masks = [1, 0, 1, 1, 0, 1], [0, 1, 1, 0]
    masked_and_fitted(model, x, masks)
    kept = rows_of(masks[0], 4)
    kernel, bias = held[0].check(hidden, kept, masks[1])
    two = np.tanh(hidden[..., kept] @ kernel + bias)
    held[1].check(two.reshape(SAMPLES, 1, -1), rows_of(masks[1], 4))


def test_layers_that_share_channels_and_a_layer_that_reads_two_groups():
    """A residual stream has two readers; what a Concatenate joins is one matrix."""
    inputs = keras.Input((7, 2))
    stem = layers.Conv1D(6, 1, activation="tanh")
    inner = layers.Conv1D(6, 3, padding="causal", activation="tanh")
    side, head = layers.Conv1D(4, 1, activation="tanh"), layers.Conv1D(3, 1)
    stream = stem(inputs)
    added = stream + inner(stream)
    model = keras.Model(inputs, head(layers.Concatenate()([added, side(inputs)])))
    drawn(model)
    x = images(model, SAMPLES)
    held, masks = [Held(inner), Held(head)], ([1, 1, 0, 0, 1, 0], [0, 1, 0, 1])
    one, two = (to_numpy(layer(x)).astype("float64") for layer in (stem, side))
    masked_and_fitted(model, x, masks)
    padded = np.pad(one, [(0, 0), (2, 0), (0, 0)])
    hidden = np.concatenate([padded[:, i : i + 7] for i in range(3)], axis=-1)
    kept = rows_of(masks[0], 3)
    kernel, bias = held[0].check(hidden, kept, masks[0])
    # The channels that go are zeros in what reads them, and still computed.
    stream = one + np.tanh(hidden[..., kept] @ kernel + bias)
    hidden = np.concatenate([stream, two], axis=-1)
    held[1].check(hidden, np.flatnonzero([*masks[0], *masks[1]]))


def test_the_second_kernel_of_a_separable_convolution():
    first = layers.Conv2D(6, 1, activation="tanh")
    second = layers.SeparableConv2D(3, 2, depth_multiplier=2)
    model = drawn(of((5, 4, 2), first, second))
    x = images(model, SAMPLES)
    one = to_numpy(first(x)).astype("float64")
    by_depth = to_numpy(second.depthwise_kernel).astype("float64")
    held, mask = Held(second), [0, 1, 1, 0, 1, 1]
    masked_and_fitted(model, x, [mask])
    hidden = np.zeros((SAMPLES, 4, 3, 6, 2))
    for i in range(2):
        for j in range(2):
            hidden += one[:, i : i + 4, j : j + 3, :, None] * by_depth[i, j]
    held.check(hidden.reshape(SAMPLES, 12, 12), np.flatnonzero(np.repeat(mask, 2)))


def test_a_transposed_convolution():
    first = layers.Conv1D(6, 1, activation="tanh")
    second = layers.Conv1DTranspose(3, 3, strides=2)
    model = drawn(of((5, 2), first, second))
    x = images(model, SAMPLES)
    one = to_numpy(first(x)).astype("float64")
    hidden = np.zeros((SAMPLES, 11, 3, 6))
    for place in range(5):
        for step in range(3):
            hidden[:, 2 * place + step, step] = one[:, place]
    held, mask = Held(second, swaps=True), [0, 1, 1, 0, 1, 1]
    masked_and_fitted(model, x, [mask])
    held.check(hidden.reshape(SAMPLES, 11, 18), rows_of(mask, 3))


def test_in_fit_it_is_what_shrink_does():
    """At a rate of zero."""
    model = drawn(MODELS["residual"][0]())
    x = images(model, 256)
    small = ki.shrink(model, {"channels": 0.5}, x, refit=True)
    method = ki.methods.Activation(x, refit=True)
    prune = ki.IdeaPruneCallback(
        targets={"channels": 0.5}, begin_step=1, prune_steps=2, method=method
    )
    # Normalizations have learned nothing else meanwhile.
    for layer in model.layers:
        layer.trainable = not isinstance(layer, layers.BatchNormalization)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(x, np.zeros((256, 3)), batch_size=64, callbacks=[prune], verbose=0)
    for one, other in zip(small.weights, model.weights, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)


@pytest.mark.parametrize("samples, why", [(SAMPLES, "too few"), (256, "not all finit")])
def test_what_fails_changes_nothing(samples, why):
    """The first layer can be fitted, the last cannot."""
    model = drawn(MODELS["residual"][0]())
    if samples > SAMPLES:
        [dense] = [lay for lay in model.layers if isinstance(lay, layers.Dense)]
        dense.kernel.assign(np.full(dense.kernel.shape, np.nan))
    before = [to_numpy(variable) for variable in model.variables]
    masks = [[1, 0] * 3]
    with pytest.raises(ki.KerasIdeaError, match=f"dense.*{why}|{why}.*dense"):
        masked_and_fitted(model, images(model, samples), masks)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)


def test_more_numbers_than_can_be_compared():
    model = of((32, 32, 1), layers.Conv2D(9, 1), layers.Flatten(), layers.Dense(2))
    with pytest.raises(ki.KerasIdeaError, match="dense.* reads 9,216"):
        x = np.zeros((8, 32, 32, 1), "float32")
        ki.shrink(model, {"channels": 3}, x, "magnitude", refit=True)


NETS = {**MODELS, **OFF_THE_STOCK_PATH}
REFUSED = {
    "grouped": "reads them in groups",
    "called twice": "called more than once",
    "limited": "a kernel constraint",
}


@pytest.mark.parametrize("name", [name for name in NETS if name != "twins"])
def test_half_of_equal_channels_do_the_work_of_all(name):
    """In every network, with all weights of a variable equal."""
    model = NETS[name][0]()
    for variable in model.weights:
        value = 1.0 if "variance" in variable.path or "gamma" in variable.path else 0.05
        variable.assign(np.full(variable.shape, value))
    x = np.abs(images(model, MANY))
    how = {"targets": {"channels": 0.5}, "data": x, "method": "magnitude"}
    if name in REFUSED:
        with pytest.raises(ki.KerasIdeaError, match=REFUSED[name]):
            ki.shrink(model, **how, refit=True)
        return
    expected = to_numpy(model(x))
    fitted = to_numpy(ki.shrink(model, **how, refit=True)(x))
    np.testing.assert_allclose(fitted, expected, rtol=2e-4, atol=2e-5)
    plain = to_numpy(ki.shrink(model, **how)(x))
    assert not np.allclose(plain, expected, rtol=2e-2)
