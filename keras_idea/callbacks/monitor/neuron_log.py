"""What the neurons of a `fit` did, written for TensorBoard."""

import numpy as np

from keras_idea.callbacks.monitor.event_log import EventLog
from keras_idea.callbacks.monitor.neuron_image import neuron_image
from keras_idea.callbacks.monitor.neuron_watch import NeuronWatch
from keras_idea.finding.find import FFN


class NeuronLog:
    """Reads the neurons now and then, and writes what was seen.

    `watch` remembers the fits before this one, which began at the step `start`.
    `last_step` is the step of the last reading.
    """

    def __init__(self, log: EventLog, watch: NeuronWatch, start: int) -> None:
        self._log, self._watch, self.last_step = log, watch, start
        self._readings = 0

    def read(self, ffns: list[FFN], step: int, last: bool = False) -> None:
        """Reads the neurons and writes it; the model must be in sync.

        `last`: see `NeuronWatch.read`.
        """
        readings = self._watch.read(ffns, step, last)
        self.last_step = step
        self._readings += 1
        values: dict[str, float | None] = {}
        for reading in readings:
            values[f"width/{reading.name}"] = reading.width
            values[f"sparsity/{reading.name}"] = reading.sparsity
            values[f"churn/{reading.name}"] = reading.churn
            known = reading.importance[np.isfinite(reading.importance)]
            tag = f"importance_log10/{reading.name}"
            self._log.histogram(step, tag, np.log10(known[known > 0]))
        churn = [reading.churn for reading in readings if reading.churn is not None]
        values["churn/mean"] = float(np.mean(churn)) if churn else None
        self._log.scalars(step, values)
        # Fewer images the longer it takes: each shows everything so far.
        if self._readings % max(1, self._readings // 16) == 0:
            self.draw(step)

    def draw(self, step: int) -> None:
        """Writes the heat map of everything read so far, if there is anything."""
        lives = self._watch.levels()
        if lives:
            self._log.image(step, "neurons", neuron_image(lives))
