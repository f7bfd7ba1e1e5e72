"""What a student follows of its teacher: logits, and the outputs of blocks."""

from typing import Any

import keras
from keras import ops
from keras.distillation import FeatureDistillation, LogitsDistillation

from keras_idea.typing import Tensor


@keras.saving.register_keras_serializable("keras_idea")
class FloatLogits(LogitsDistillation):
    """Softmax and divergence in float32, whatever the logits were computed in.

    With p the teacher's and q the student's softmax(logits / T): T**2 times the mean
    over the tokens of sum_i p_i log(p_i / q_i).

    The loss is an object: given as a string, Keras 3.15 takes the divergence of the
    logits themselves (it looks for the class to apply a softmax).

    Args:
        temperature: float > 0, T.
        top_k: int >= 1 or None, of how many tokens, the teacher's likeliest: both
            softmaxes are over them alone. None: of all.
    """

    def __init__(self, temperature: float, top_k: int | None = None) -> None:
        super().__init__(temperature, loss=keras.losses.KLDivergence())
        self._top_k = top_k

    def compute_loss(
        self,
        teacher_outputs: Tensor,
        student_outputs: Tensor,
        sample_weight: Any = None,
        **kwargs: object,
    ) -> Tensor:
        """`LogitsDistillation`'s, of float32; with weights, of the weighted tokens."""
        outputs = (teacher_outputs, student_outputs)
        if self._top_k is not None and self._top_k < teacher_outputs.shape[-1]:
            likeliest, places = ops.top_k(teacher_outputs, self._top_k)
            theirs = ops.take_along_axis(student_outputs, places, axis=-1)
            outputs = (likeliest, theirs)
        theirs, ours = (ops.cast(o, "float32") for o in outputs)
        if sample_weight is None:
            return super().compute_loss(theirs, ours)
        probabilities = (
            ops.softmax(logits / self.temperature, axis=-1) for logits in (theirs, ours)
        )
        return self.loss(*probabilities, sample_weight) * self.temperature**2

    def get_config(self) -> dict[str, Any]:
        """Its arguments."""
        return {"temperature": self.temperature, "top_k": self._top_k}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FloatLogits":
        """Made of its arguments."""
        return cls(**config)


@keras.saving.register_keras_serializable("keras_idea")
class BlockOutputs(FeatureDistillation):
    """The squared error of a block's output, as a share of the teacher's mean square.

    mean(w * (t - s)**2) / mean(w * t**2) over the tokens and features of a batch, in
    float32, with the tokens' weights w: 0 where they are equal, 1 for an output of
    zeros, whatever the block's scale.

    Args:
        teacher_layer_name: str, the teacher's block.
        student_layer_name: str, the student's, of as many features.
    """

    def __init__(self, teacher_layer_name: str, student_layer_name: str) -> None:
        super().__init__("mse", teacher_layer_name, student_layer_name)

    def compute_loss(
        self,
        teacher_outputs: Tensor,
        student_outputs: Tensor,
        sample_weight: Any = None,
        **kwargs: object,
    ) -> Tensor:
        """The share; with weights, of the weighted tokens."""
        outputs = (teacher_outputs, student_outputs)
        theirs, ours = (ops.cast(o, "float32") for o in outputs)
        error, size = (ops.mean(ops.square(x), -1) for x in (theirs - ours, theirs))
        if sample_weight is not None:
            weights = ops.cast(sample_weight, "float32")
            while len(weights.shape) < len(error.shape):
                weights = ops.expand_dims(weights, -1)
            error, size = error * weights, size * weights
        return ops.mean(error) / ops.maximum(ops.mean(size), keras.config.epsilon())

    def get_config(self) -> dict[str, Any]:
        """Its arguments."""
        return {
            "teacher_layer_name": self.teacher_layer_name,
            "student_layer_name": self.student_layer_name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BlockOutputs":
        """Made of its arguments."""
        return cls(**config)
