"""A student that follows a teacher, by Keras's own `Distiller`."""

from keras_idea.distillation.distiller import distiller
from keras_idea.distillation.losses import BlockOutputs, FloatLogits
from keras_idea.keras_private.weighted_distiller import WeightedDistiller

__all__ = ["BlockOutputs", "FloatLogits", "WeightedDistiller", "distiller"]
