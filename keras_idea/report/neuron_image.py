"""The heat map of the neurons as plain pixels, drawn without matplotlib."""

import numpy as np

from keras_idea.report.neuron_lives import NeuronLives

# Yellow (least important) over green to blue (most), and grey for the dead.
_RAMP = np.array(
    [
        (255, 255, 217),
        (237, 248, 177),
        (199, 233, 180),
        (127, 205, 187),
        (65, 182, 196),
        (29, 145, 192),
        (34, 94, 168),
        (37, 52, 148),
    ]
)
_DEAD = (222, 226, 230)
_GAP = 4


def neuron_image(
    layers: list[NeuronLives], width: int = 640, height: int = 480
) -> np.ndarray:
    """Draws when which neurons lived: steps to the right, a band a layer.

    In a band the neurons are sorted by the step at which they were pruned, the first on
    top; those that stay are sorted by their mean rank. Blue is important, yellow
    unimportant, grey dead. `height` is that of all bands together, roughly.

    Returns:
        uint8 array `(height, width, 3)`.
    """
    rows = max(8, height // len(layers) - _GAP)
    bands = []
    for layer in layers:
        gap = np.full((_GAP, width, 3), 255, "uint8")
        bands += [_band(layer, rows, width), gap]
    return np.concatenate(bands[:-1])


def _band(lives: NeuronLives, rows: int, width: int) -> np.ndarray:
    # A reading's column reaches back to the reading before it.
    steps = np.linspace(0, lives.steps[-1], width)
    columns = np.minimum(np.searchsorted(lives.steps, steps), len(lives.steps) - 1)
    return _COLORS[lives.sorted_levels(rows)[:, columns]]


def _color_table() -> np.ndarray:
    places = np.linspace(0, 254, len(_RAMP))
    ramp = [np.interp(np.arange(255), places, channel) for channel in _RAMP.T]
    living = np.stack(ramp, axis=1).round().astype("uint8")
    return np.concatenate([np.array([_DEAD], "uint8"), living])


_COLORS = _color_table()
