"""KerasHub's own tests of a backbone pass on what `compact` returns."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import MODELS, batch, tiny_backbone
from tests.support.masks import prune_by_hand

NAMES = ("llama3", pytest.param("gemma", marks=pytest.mark.daily()))
WIDTH = 10


@pytest.fixture
def case():
    """An instance of KerasHub's test case (its module imports grain)."""
    from keras_hub.src.tests.test_case import TestCase

    class Case(TestCase):
        def runTest(self):
            pass

    case = Case()
    case.setUp()
    yield case
    case.tearDown()


def compacted(name):
    """A narrow backbone, and what its constructor was given, by its own config."""
    backbone = tiny_backbone(name)
    for shift, ffn in enumerate(ki.find_ffns(backbone)):
        prune_by_hand(ffn, np.roll(np.arange(ffn.hidden_dim) < WIDTH, 3 * shift))
    narrow = ki.compact(backbone)
    config = narrow.get_config()
    arguments = {key: config[key] for key in MODELS[name].arguments}
    (per_neuron,) = MODELS[name].widths.values()
    assert arguments["intermediate_dim"] == WIDTH * per_neuron
    x, _ = batch(narrow, np.random.default_rng(0))
    return narrow, arguments, x


@pytest.mark.parametrize("name", NAMES)
def test_backbone(case, name):
    narrow, arguments, x = compacted(name)
    case.run_backbone_test(
        cls=type(narrow),
        init_kwargs=arguments,
        input_data=x,
        expected_output_shape=(*x["token_ids"].shape, 16),
    )


@pytest.mark.daily()
@pytest.mark.parametrize("name", NAMES)
def test_model_saving(case, name):
    narrow, arguments, x = compacted(name)
    case.run_model_saving_test(cls=type(narrow), init_kwargs=arguments, input_data=x)


@pytest.mark.parametrize("name", NAMES)
def test_the_instance_itself(case, name):
    narrow, arguments, x = compacted(name)
    case.run_serialization_test(narrow)
    case.run_quantization_test(narrow, type(narrow), arguments, x)
    expected = to_numpy(narrow(x))
    path = f"{case.get_temp_dir()}/{name}.keras"
    narrow.save(path)
    loaded = keras.models.load_model(path)
    assert type(loaded) is type(narrow)
    np.testing.assert_allclose(to_numpy(loaded(x)), expected, rtol=0, atol=1e-6)
