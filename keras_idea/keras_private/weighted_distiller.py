"""Keras's `Distiller`, exact with sample weights, in one pass of the student.

It reads what that one keeps to itself. Seen with Keras 3.15.1.
"""

from typing import Any

import keras
from keras.distillation import Distiller


@keras.saving.register_keras_serializable("keras_idea")
class WeightedDistiller(Distiller):
    """A `Distiller` whose step is the student's own step, with a teacher beside it.

    In three things Keras's (3.15) differs from the student's own `fit`, and this does
    not: sample weights count, in each of the losses; the losses that the student's
    layers add (regularizers, routers) are added; and where outputs of layers are
    compared, the student runs once a step, so that with dropout they are those of its
    prediction.

    Attributes:
        source: keras.Model, what `keras_idea.distiller` was given as `student`, which
            is another graph of its layers.
    """

    source: keras.Model

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The student casts its inputs itself, whatever Keras's policy is now.
        super().__init__(*args, autocast=False, **kwargs)

    def hold(self, source: keras.Model) -> None:
        """Sets `source`; the pair's variables come in the order of its variables."""
        if source is self.student:
            self.__dict__["source"] = source  # it is held already
            return
        self.source = source
        self._layers.insert(0, self._layers.pop())

    def call(self, inputs: Any, training: Any = None, **kwargs: Any) -> Any:
        """The student's prediction."""
        extractor = self._student_feature_extractor
        if extractor is None or not training:
            return super().call(inputs, training=training, **kwargs)
        # `compute_loss`, in the same trace, is given the prediction alone. Past
        # `__setattr__`, by which Keras and TensorFlow would wrap the tensors.
        outputs = self.__dict__["_outputs"] = extractor(inputs, training=training)
        return outputs["final_output"]

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """(1 - weight) * loss of the labels + weight * losses of the teacher."""
        if y_pred is None:
            y_pred = self(x, training=training)
        share = self.student_loss_weight
        text, followed = 0.0, 0.0
        if share > 0.0 and y is not None:
            text = keras.ops.mean(
                _of_labels(self._student_loss)(y, y_pred, sample_weight)
            )
        if share < 1.0:
            followed = self._followed(x, y_pred, sample_weight, training)
        total = share * text + (1.0 - share) * followed
        for loss in self.student.losses:
            total = total + keras.ops.sum(keras.ops.cast(loss, "float32"))
        self.student_loss_tracker.update_state(text)
        self.distillation_loss_tracker.update_state(followed)
        self.total_loss_tracker.update_state(total)
        return total

    def _validate_dtype_compatibility(self, teacher: Any, student: Any) -> None:
        """Nothing: the losses compare in float32 what either computes in."""

    def _create_feature_extractor(self, model: Any, layer_names: Any) -> Any:
        made = super()._create_feature_extractor(model, layer_names)
        # Keras's takes a list of inputs, and warns of a dict or of one tensor.
        if made is None:
            return None
        inputs = getattr(model, "_functional", model).input  # a Sequential's own
        return keras.Model(inputs, made.output, name=made.name)

    def _followed(self, x: Any, y_pred: Any, sample_weight: Any, training: bool) -> Any:
        theirs = self._extract_all_teacher_features(x)
        ours = self._student_outputs(x, y_pred, training)
        weights = self.distillation_loss_weights
        total = 0.0
        for loss, weight in zip(self.distillation_losses, weights, strict=True):
            their_name = getattr(loss, "teacher_layer_name", None) or "final_output"
            our_name = getattr(loss, "student_layer_name", None) or "final_output"
            outputs = theirs[their_name], ours[our_name]
            total = total + weight * loss.compute_loss(
                *outputs, sample_weight=sample_weight
            )
        return total

    def _student_outputs(self, x: Any, y_pred: Any, training: bool) -> dict[str, Any]:
        outputs = self.__dict__.pop("_outputs", None)
        if self._student_feature_extractor is None:
            return {"final_output": y_pred}
        if outputs is not None and outputs["final_output"] is y_pred:
            return outputs
        return self._student_feature_extractor(x, training=training)


def _of_labels(loss: Any) -> keras.losses.Loss:
    """The loss of the labels as Keras's `fit` computes it, with weights."""
    (loss,) = keras.tree.flatten(loss)
    return loss if isinstance(loss, keras.losses.Loss) else _FunctionLoss(loss)


class _FunctionLoss(keras.losses.Loss):
    def __init__(self, function: Any) -> None:
        super().__init__(name="labels")  # no root scope of TensorFlow begins with _
        self._function = function

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self._function(y_true, y_pred)
