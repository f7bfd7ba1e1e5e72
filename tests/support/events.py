"""Event files read back by TensorBoard's own reader."""

import io
import sys
import types

import numpy as np
from PIL import Image

# TensorBoard's switch to do without TensorFlow, which it would import: 10 seconds.
sys.modules.setdefault(
    "tensorboard.compat.notf", types.ModuleType("tensorboard.compat.notf")
)
from tensorboard.backend.event_processing.event_accumulator import (  # noqa: E402
    EventAccumulator,
)

_ALL = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}


class Events:
    """What TensorBoard shows of one run of a log folder."""

    def __init__(self, folder):
        self._reader = EventAccumulator(str(folder), size_guidance=_ALL)
        self._reader.Reload()

    @property
    def tags(self):
        return set(self._reader.Tags()["scalars"])

    def steps(self, tag):
        return [event.step for event in self._reader.Scalars(tag)]

    def scalars(self, tag):
        """Dict of step to value."""
        return {event.step: event.value for event in self._reader.Scalars(tag)}

    def histograms(self, tag):
        """Dict of step to histogram."""
        return {e.step: e.histogram_value for e in self._reader.Histograms(tag)}

    def images(self, tag):
        """Dict of step to uint8 array."""
        return {
            event.step: np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
            for event in self._reader.Images(tag)
        }
