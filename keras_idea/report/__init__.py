"""What a run shows at its end: one picture and one table."""

from keras_idea.report.history import NeuronLives, TrainingCurve
from keras_idea.report.table import ResultRow

__all__ = ["NeuronLives", "ResultRow", "TrainingCurve"]
