"""What reads channels is fitted as `numpy.linalg.lstsq` fits it, in float64."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from keras_idea._surgery.refit import carry_out_and_refit
from keras_idea.methods.calibration import Samples
from keras_idea.methods.method import Decision
from tests.laws.groups.test_channels_by_activation import images
from tests.laws.shapes.test_refit import chosen
from tests.support.conv_nets import MODELS, drawn
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
    carry_out_and_refit(model, decisions, Samples(x, len(x), 6))


def rows_of(mask, places):
    """The rows of a kernel that covers so many places, of channels that stay."""
    return np.flatnonzero(np.tile(np.array(mask), places))


class Held:
    """A layer's kernel as a matrix, and its bias, before a fit: what fits them."""

    def __init__(self, layer):
        self.layer = layer
        self.kernel, self.bias = self.now()

    def now(self):
        *_, kernel, bias = (to_numpy(v).astype("float64") for v in self.layer.weights)
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


NETS = {**MODELS, **OFF_THE_STOCK_PATH}
REFUSED = {
    "grouped": "without groups",
    "transposed": "Transpose",
    "separable": "Separable",
    "called twice": "called more than once",
    "limited": "a kernel constraint",
}


@pytest.mark.parametrize("name", ["residual", *REFUSED])
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
