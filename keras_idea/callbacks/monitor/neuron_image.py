"""The heat maps of the neurons as plain pixels, drawn without matplotlib."""

from collections.abc import Sequence

import numpy as np

from keras_idea.callbacks.monitor.bands import Band, bands
from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.validation import require

# Yellow (least important) over green to blue (most), and gray for the pruned.
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
_PRUNED = (222, 226, 230)
_INK = (31, 41, 51)
#: Height of the title of a heat map, in pixels.
TITLE = 20


def neuron_image(
    layers: Sequence[NeuronLives], width: int = 640, height: int = 480
) -> np.ndarray:
    """Draws when which neurons were active: steps to the right, a band per layer.

    More than 12 layers have one band per kind (see `bands`). In a band the neurons are
    sorted by the step at which they were pruned, the first on top; those that stay are
    sorted by their mean rank. Blue is important, yellow unimportant, gray pruned.
    `height` is that of all bands together without their titles, roughly.

    Returns:
        uint8 array `(height, width, 3)`.
    """
    shown = bands(layers)
    whole = sum(band.height for band in shown)
    parts = []
    for band in shown:
        rows = max(1, round(height * band.height / whole))
        parts += [_title(band.title, width), _map(band, rows, width)]
    return np.concatenate(parts)


def _title(text: str, width: int) -> np.ndarray:
    images = require("PIL.Image", "Logging to TensorBoard", "tensorboard")
    drawing = require("PIL.ImageDraw", "Logging to TensorBoard", "tensorboard")
    image = images.new("RGB", (width, TITLE), "white")
    drawing.Draw(image).text((1, TITLE // 2), text, _INK, anchor="lm", font_size=14)
    return np.asarray(image)


def _map(band: Band, rows: int, width: int) -> np.ndarray:
    lives = band.lives
    columns = lives.reading_at(np.linspace(0, lives.steps[-1], width))
    return _COLORS[lives.sorted_levels(rows)[:, columns]]


def _color_table() -> np.ndarray:
    places = np.linspace(0, 254, len(_RAMP))
    ramp = [np.interp(np.arange(255), places, channel) for channel in _RAMP.T]
    living = np.stack(ramp, axis=1).round().astype("uint8")
    return np.concatenate([np.array([_PRUNED], "uint8"), living])


_COLORS = _color_table()
