"""Keras's `Distiller` with sample weights and the student's own losses.

It reads private attributes. Seen with Keras 3.15.1.
"""

from typing import Any

import keras
from keras.distillation import Distiller


@keras.saving.register_keras_serializable("keras_idea")
class WeightedDistiller(Distiller):
    """A `Distiller` by logits whose step is the student's own step.

    Unlike Keras's (3.15), it uses sample weights in both losses, and adds the losses of
    the student's layers (regularizers, routers).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The student casts its inputs itself, whatever Keras's policy is now.
        super().__init__(*args, autocast=False, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns (1 - weight) * loss of the labels + weight * loss of the logits."""
        share = self.student_loss_weight
        text, followed = 0.0, 0.0
        if share > 0.0 and y is not None:
            text = keras.ops.mean(
                _of_labels(self._student_loss)(y, y_pred, sample_weight)
            )
        if share < 1.0:
            theirs = self.teacher(x, training=False)
            (loss,) = self.distillation_losses
            followed = loss.compute_loss(theirs, y_pred, sample_weight=sample_weight)
        total = share * text + (1.0 - share) * followed
        for added in self.student.losses:
            total = total + keras.ops.sum(keras.ops.cast(added, "float32"))
        self.student_loss_tracker.update_state(text)
        self.distillation_loss_tracker.update_state(followed)
        self.total_loss_tracker.update_state(total)
        return total

    def _validate_dtype_compatibility(self, teacher: Any, student: Any) -> None:
        """Accepts any two dtypes: the loss compares logits in float32."""


def _of_labels(loss: Any) -> keras.losses.Loss:
    """Returns the loss of the labels as `fit` computes it, with weights."""
    (loss,) = keras.tree.flatten(loss)
    return loss if isinstance(loss, keras.losses.Loss) else _FunctionLoss(loss)


class _FunctionLoss(keras.losses.Loss):
    def __init__(self, function: Any) -> None:
        super().__init__(name="labels")  # TensorFlow's root scopes do not begin with _
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self._function(y_true, y_pred)
