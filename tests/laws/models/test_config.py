"""The decoder's config: parameter counts of real shapes, and refusals."""

import dataclasses
import time

import keras
import pytest

from keras_idea.layers import GatedFFN
from keras_idea.models import PAPER_CONFIGS, decoder
from tests.support.tiny_decoder import TINY


@pytest.mark.parametrize("tie_embeddings", [False, True])
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_non_embedding_parameters_of_a_real_model(tie_embeddings, kv_heads):
    config = dataclasses.replace(
        TINY, tie_embeddings=tie_embeddings, num_key_value_heads=kv_heads
    )
    matrices = 1 if tie_embeddings else 2
    assert (
        decoder(config, ffn=GatedFFN).count_params()
        == config.non_embedding_parameters + matrices * 19 * 16
    )


@pytest.fixture
def abstract():
    """A scope in which variables have shapes and no values."""
    yield keras.StatelessScope(initialize_variables=False)
    # Keras keeps a list of such variables, and would allocate their 20 GB when
    # the next stateless scope of any other test ends.
    keras.utils.clear_session()


@pytest.mark.parametrize(
    "name, model_dim, hidden_dim, about",
    [
        ("300m", 1024, 3072, 0.3e9),
        ("300m-enlarged", 1024, 8192, 0.7e9),
        ("1.3b", 2048, 6528, 1.3e9),
        ("2.8b", 2048, 16384, 2.8e9),
    ],
)
def test_paper_shapes_have_the_paper_parameters(
    abstract, name, model_dim, hidden_dim, about
):
    config = PAPER_CONFIGS[name]
    start = time.perf_counter()
    with abstract:
        model = decoder(config, ffn=GatedFFN)
    assert time.perf_counter() - start < 10
    norms = (2 * 24 + 1) * model_dim
    by_hand = 24 * (4 * model_dim**2 + 3 * model_dim * hidden_dim) + norms
    assert config.non_embedding_parameters == by_hand
    assert model.count_params() - 2 * config.vocabulary_size * model_dim == by_hand
    assert by_hand == pytest.approx(about, rel=0.1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be an integer >= 1"),
        ({"model_dim": -16}, "`model_dim` must be an integer >= 1"),
        ({"num_layers": 0}, "`num_layers` must be an integer >= 1"),
        ({"num_layers": 2.5}, r"`num_layers` .* Received: num_layers=2\.5"),
        ({"num_heads": True}, "`num_heads` must be .* Received: num_heads=True"),
        ({"hidden_dim": "24"}, "`hidden_dim` must be .* Received: hidden_dim='24'"),
        (
            {"hidden_dim": None},
            "`hidden_dim` is required: .* Received: hidden_dim=None",
        ),
        ({"sequence_length": 0}, "`sequence_length` must be an integer >= 1"),
        ({"num_key_value_heads": 0}, "`num_key_value_heads` must be an integer >= 1"),
        ({"num_key_value_heads": 3}, "`num_key_value_heads` must divide `num_heads`"),
        ({"num_key_value_heads": 8}, "Pass a divisor of 4, or None"),
        ({"model_dim": 18}, "`model_dim` must be a multiple .* above is 20"),
        ({"model_dim": 12}, "must be even.* 3 features a head.* multiple of 8"),
        ({"rope_max_wavelength": 0.0}, r"`rope_max_wavelength` .* in \[1\.0, inf\)"),
        ({"tie_embeddings": "yes"}, "`tie_embeddings` must be one of False, True"),
        ({"rms_norm_epsilon": -1.0}, "`rms_norm_epsilon` must be a number"),
    ],
)
def test_bad_config_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError, match="hidden_dim"):
        TINY.hidden_dim = 8
