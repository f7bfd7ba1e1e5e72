"""The heat map of the neurons as plain pixels, drawn without matplotlib."""

import dataclasses

import numpy as np

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


@dataclasses.dataclass(frozen=True)
class NeuronLevels:
    """How the neurons of one layer ranked at each reading.

    Args:
        layer: str, the layer's name.
        steps: int array `(readings,)`, ascending: the steps at which it was read.
        levels: uint8 array `(readings, hidden_dim)`: 0 dead, else the rank of
            importance among the living, from 1 (least) to 255 (most).
    """

    layer: str
    steps: np.ndarray
    levels: np.ndarray


def neuron_image(layers, width=640, height=480):
    """Draws when which neurons lived: steps to the right, a band a layer.

    In a band the neurons are sorted by the step of their death, the first on top;
    those that live on are sorted by their mean rank. Blue is important, yellow
    unimportant, grey dead.

    Args:
        layers: non-empty list of `NeuronLevels`.
        width: int, pixels.
        height: int, pixels of all bands together, roughly.

    Returns:
        uint8 array `(height, width, 3)`.
    """
    rows = max(8, height // len(layers) - _GAP)
    bands = []
    for layer in layers:
        gap = np.full((_GAP, width, 3), 255, "uint8")
        bands += [_band(layer, rows, width), gap]
    return np.concatenate(bands[:-1])


def _band(layer, rows, width):
    dead = layer.levels == 0
    death = np.where(dead.any(axis=0), dead.argmax(axis=0), len(dead))
    order = np.lexsort((layer.levels.mean(axis=0), death))
    order = order[np.linspace(0, len(order) - 1, rows).round().astype(int)]
    # A reading's column reaches back to the reading before it.
    steps = np.linspace(0, layer.steps[-1], width)
    columns = np.minimum(np.searchsorted(layer.steps, steps), len(dead) - 1)
    return _COLORS[layer.levels[columns][:, order].T]


def _color_table():
    places = np.linspace(0, 254, len(_RAMP))
    ramp = [np.interp(np.arange(255), places, channel) for channel in _RAMP.T]
    living = np.stack(ramp, axis=1).round().astype("uint8")
    return np.concatenate([np.array([_DEAD], "uint8"), living])


_COLORS = _color_table()
