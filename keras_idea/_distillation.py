"""Pairs a student with a teacher whose logits it follows."""

from typing import Any

import keras
from keras import ops
from keras.distillation import LogitsDistillation

from keras_idea._keras.models import compile_arguments
from keras_idea._keras.weighted_distiller import WeightedDistiller
from keras_idea._typing import Tensor
from keras_idea._validation import check_int, check_number
from keras_idea.errors import ArgumentError


def distiller(
    teacher: keras.Model,
    student: keras.Model,
    *,
    temperature: float = 1.0,
    weight: float = 0.5,
    top_k: int | None = None,
) -> keras.distillation.Distiller:
    r"""Pairs a student with a teacher: Keras's `Distiller`, ready to fit.

    With p the teacher's and q the student's softmax(logits / T), the loss of a step is

    $$(1 - w)\,\mathrm{labels} + w\,T^2\,\mathrm{mean} \sum_i p_i \log(p_i / q_i)$$

    plus the student's regularizers. Sample weights count in both parts. The divergence
    is computed in float32. For outputs of blocks, see Keras's `FeatureDistillation`.

    Args:
        teacher: keras.Model. A model of the same inputs and logits. It is frozen.
        student: keras.Model. What the pair trains. If it is compiled, the pair has its
            optimizer, loss, weighted metrics and `jit_compile`. Else compile the pair.
        temperature: float > 0. T. Defaults to 1.0.
        weight: float in [0, 1]. w, the share of the teacher. With 1.0, labels have no
            effect; then an untouched copy has no gradient, so "sensitivity" cannot rank
            its neurons. Defaults to 0.5.
        top_k: int >= 1 or None. Compares only the teacher's likeliest tokens; uses less
            memory, and is another loss. Defaults to None (all).

    Returns:
        `keras.distillation.Distiller`.

    Raises:
        ValueError: If an argument is outside its range, if a model is not built, or if
            the models share variables.

    Example:
    >>> student = keras.models.clone_model(model)
    >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> student.compile("adamw", loss)
    >>> pair = ki.distiller(model, student)
    >>> _ = pair.fit(data, callbacks=[prune], verbose=0)
    >>> student.count_params() < model.count_params()
    True

    Source: Hinton, Vinyals and Dean, 2015, "Distilling the Knowledge in a Neural
    Network".
    """
    if not (teacher.built and student.built):
        raise ArgumentError("Build `teacher` and `student`: call each on a batch.")
    if {*map(id, teacher.variables)} & {*map(id, student.variables)}:
        raise ArgumentError(
            "`teacher` and `student` must not share variables. Load the model twice, "
            "or copy it with keras.models.clone_model and set_weights."
        )
    check_number("temperature", temperature)  # Keras rejects 0
    check_number("weight", weight, 0.0, 1.0)
    if top_k is not None:
        check_int("top_k", top_k, 1)
    loss = FloatLogits(float(temperature), top_k)
    pair = WeightedDistiller(teacher, student, loss, student_loss_weight=1.0 - weight)
    if student.compiled and student.optimizer is not None:
        given = compile_arguments(student)
        names = ["loss", "weighted_metrics", "run_eagerly", "steps_per_execution"]
        names += ["jit_compile", "auto_scale_loss"]
        arguments = {name: given[name] for name in names if name in given}
        pair.compile(optimizer=student.optimizer, **arguments)
    return pair


@keras.saving.register_keras_serializable("keras_idea")
class FloatLogits(LogitsDistillation):
    """Keras's loss of logits, in float32 and with sample weights; see `distiller`."""

    def __init__(self, temperature: float, top_k: int | None = None) -> None:
        # An object: of a string, Keras 3.15 compares the logits without a softmax.
        super().__init__(temperature, loss=keras.losses.KLDivergence())
        self._top_k = top_k

    def compute_loss(
        self,
        teacher_outputs: Tensor,
        student_outputs: Tensor,
        sample_weight: Any = None,
        **kwargs: object,
    ) -> Tensor:
        """Returns the loss; with sample weights, the mean of the weighted tokens."""
        outputs = teacher_outputs, student_outputs
        if self._top_k is not None and self._top_k < teacher_outputs.shape[-1]:
            likeliest, places = ops.top_k(teacher_outputs, self._top_k)
            outputs = likeliest, ops.take_along_axis(student_outputs, places, axis=-1)
        probabilities = [
            ops.softmax(ops.cast(logits, "float32") / self.temperature, axis=-1)
            for logits in outputs
        ]
        return self.loss(*probabilities, sample_weight) * self.temperature**2

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return {"temperature": self.temperature, "top_k": self._top_k}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FloatLogits":
        """Makes a loss from its arguments."""
        return cls(**config)
