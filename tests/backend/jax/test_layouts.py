"""Layouts by what they do: what a device holds, and what a train step gathers."""

import functools
import json

import pytest

from keras_idea import find_ffns
from keras_idea.errors import ConfigError
from keras_idea.lm.distribution import kernel_layouts
from keras_idea.models import DecoderConfig, decoder
from tests import ENDURANCE
from tests.support.hub_models import MIXTURES, MODELS, tiny_lm
from tests.support.processes import run_script

if ENDURANCE:
    NAMES = ["decoder", *(name for name in MODELS if name not in MIXTURES)]


@functools.cache
def told():
    return json.loads(run_script("layouts_script", "decoder").splitlines()[-1])


@pytest.mark.parametrize("name", ["decoder"])
class TestOnAMesh:
    @pytest.mark.daily()
    def test_the_losses_are_one_device_s(self, name):
        expected, found = told()[name]["losses"]
        assert found == pytest.approx(expected, rel=2e-6)

    def test_a_device_holds_half_of_every_large_kernel(self, name):
        held, shapes = told()[name]["held"], told()[name]["shapes"]
        # Two query heads, one for keys and values: those stay whole, as norms do.
        whole = ("norm", "scale", "key", "value", "k_proj", "v_proj", "bias", "scalar")
        for path, share in held.items():
            large = len(shapes[path]) > 1 and not any(w in path for w in whole)
            if large:
                assert share == 0.5, path

    def test_no_kernel_is_gathered(self, name):
        cut = {
            tuple(told()[name]["shapes"][path])
            for path, share in told()[name]["held"].items()
            if share < 1
        }
        assert cut and cut.isdisjoint(map(tuple, told()[name]["gathered"]))


SHAPE = {
    "vocabulary_size": 30,
    "model_dim": 16,
    "num_layers": 1,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "hidden_dim": 24,
    "sequence_length": 8,
}


def tiny(**changes):
    return decoder(DecoderConfig(**{**SHAPE, **changes}))


def test_each_kernel_of_a_stock_ffn_is_cut_along_its_neurons():
    lm = tiny_lm("gemma2")
    layouts = kernel_layouts(lm, 2)
    assert len(layouts) == 11
    for ffn in find_ffns(lm):
        *entrances, down = ffn.kernels
        assert {layouts[kernel.path] for kernel in entrances} == {(None, "model")}
        assert layouts[down.path] == ("model", None)


@pytest.mark.parametrize(
    "changes, size, match",
    [
        (
            {"hidden_dim": 22},
            4,
            "model=4, and block_0/ffn_0 has 22 neurons. Set the FFN width to 20 or 24",
        ),
        (
            {"num_heads": 2},
            4,
            "divide the query heads. Received: model=4, with 2 heads",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(changes, size, match):
    with pytest.raises(ConfigError, match=match):
        kernel_layouts(tiny(**changes), size)
