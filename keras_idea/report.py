"""What a run shows at its end: one picture and one table."""

from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.table import ResultRow

__all__ = ["NeuronLives", "ResultRow", "TrainingCurve"]
