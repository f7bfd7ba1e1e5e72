"""The monitor's parts, where a whole run would not show the corner."""

import numpy as np

from keras_idea.callbacks.monitor.interval import IntervalMeter
from keras_idea.callbacks.monitor.neuron_image import neuron_image
from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.finding.work_count import (
    matrix_weights,
    multiply_adds,
)
from keras_idea.functional.counts import train_flops
from tests.support.tiny_decoder import DecoderConfig, decoder


def means(losses):
    """What Keras logs: the mean of the epoch so far."""
    return np.cumsum(losses) / np.arange(1, len(losses) + 1)


class TestInterval:
    def test_losses_over_epochs_and_in_any_order(self):
        rng = np.random.default_rng(0)
        losses = rng.normal(size=(2, 6))
        meter = IntervalMeter()
        meter.begin_epoch()
        for batch in (0, 2, 1, 3, 5, 4):
            meter.add(batch + 1, {"loss": means(losses[0])[batch]}, now=10.0 + batch)
        assert np.isclose(meter.take(4).loss, losses[0, :4].mean())
        meter.begin_epoch()
        assert meter.take(3) is None  # not there yet
        for batch in range(3):
            meter.add(batch + 1, {"loss": means(losses[1])[batch]}, now=100.0 + batch)
        both = [*losses[0, 4:], *losses[1, :3]]
        assert np.isclose(meter.take(3).loss, np.mean(both))


class TestWork:
    def test_weights_of_a_decoder(self):
        """By hand: attention 4 d d, FFN 3 d h, logits V d; no lookup, no norm."""
        config = DecoderConfig(
            vocabulary_size=50,
            model_dim=8,
            num_layers=2,
            num_heads=2,
            hidden_dim=12,
            sequence_length=6,
        )
        expected = 2 * (4 * 8 * 8 + 3 * 8 * 12) + 50 * 8
        model = decoder(config)
        assert matrix_weights(model) == expected
        assert train_flops(expected, 10) == 60 * expected
        # Each of two layers: 6 positions by 8 features, with queries and with values.
        assert multiply_adds(model, 6) == expected + 2 * (2 * 6 * 8)
        assert multiply_adds(model, None) == expected


class TestImage:
    def test_the_dead_are_on_top_and_from_their_step_on(self):
        levels = np.array([[1, 128, 255], [0, 1, 255]], "uint8")
        layer = NeuronLives("ffn", np.array([10, 20]), levels)
        pixels = neuron_image([layer, layer], width=40, height=60)
        assert pixels.shape == (100, 40, 3) and pixels.dtype == np.uint8
        dead = (pixels == (222, 226, 230)).all(axis=-1)
        # Below a title of 20 pixels, the neurons of the first layer and of the other.
        for map_ in (dead[20:50], dead[70:]):
            assert map_[:7, 21:].all() and not map_[:, :19].any()
            assert not map_[12:].any()
        assert (pixels[49, 5] == (37, 52, 148)).all()  # the most important
