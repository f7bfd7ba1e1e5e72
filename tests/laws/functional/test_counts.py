"""Parameter and FLOP counts, against real layers and the paper's models."""

import keras
import pytest

import keras_idea as ki
from keras_idea import functional


@pytest.mark.parametrize("use_bias", [False, True])
def test_parameters_of_a_real_layer(use_bias):
    layer = ki.GatedFFN(12, use_bias=use_bias)
    layer.build((None, 8))
    assert layer.count_params() == functional.ffn_parameters(8, 12, use_bias)


def test_the_paper_s_ffn_sizes():
    # PAPER.md: 2.8B against 1.3B, 24 layers, d = 2048.
    saved = functional.ffn_parameters(2048, 16384) - functional.ffn_parameters(
        2048, 6528
    )
    assert 24 * saved == 1_453_326_336


def test_flops_are_two_a_weight_and_three_times_that_in_training():
    assert functional.ffn_flops(2, 5) == 2 * 3 * 2 * 5
    assert functional.ffn_flops(2, 5, tokens=7, training=True) == 7 * 3 * 60


def test_masking_costs_nothing_narrowing_saves():
    wide = keras.Sequential([keras.Input((8,)), ki.PrunableGatedFFN(16)])
    narrow = ki.compact(wide)
    assert narrow.count_params() == functional.ffn_parameters(8, 16)
