"""What a run shows at its end: one picture and one table."""

from keras_idea.report.curves import TrainingCurve
from keras_idea.report.neuron_lives import NeuronLives
from keras_idea.report.table import ResultRow

__all__ = ["NeuronLives", "ResultRow", "TrainingCurve"]
