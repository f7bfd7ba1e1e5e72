"""A teacher whose logits a run's models follow besides the text."""

import json
import zipfile
from typing import Any

import keras
import numpy as np
from keras.distillation import Distiller, LogitsDistillation

from keras_idea.errors import ConfigError, ExportRefused
from keras_idea.hub.inputs import token_inputs
from keras_idea.hub.loading import outline
from keras_idea.keras_private.variables import without_values
from keras_idea.lm.data.text.vocabulary import Vocabulary
from keras_idea.lm.export.load import find_model, load_run
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.judge.judged import ADD_TOKENIZER, vocabulary_of
from keras_idea.lm.runs.models.compiling import cross_entropy, jit_argument
from keras_idea.lm.runs.train.recorder import text_loss
from keras_idea.lm.runs.train.run import Run
from keras_idea.models.decoder import compute_in
from keras_idea.typing import Tensor
from keras_idea.validation import plural


def load_teacher(source: str, dtype: str, vocabulary: Vocabulary) -> keras.Model:
    """A run's teacher, tokens to logits, computed in `dtype`.

    Raises:
        ConfigError: if there is no such model, or its tokens are not `vocabulary`'s.
    """
    try:
        teacher = load_run(source, "learn from", dtype=dtype)
    except ExportRefused as error:
        raise ConfigError(f"`distillation.teacher`: {error}") from error
    known = vocabulary_of(teacher)
    if known is None:
        raise ConfigError(
            "`distillation.teacher` has no tokenizer, so nobody knows whether it reads "
            f"the run's own tokens. Received: teacher={source!r}. {ADD_TOKENIZER}"
        )
    if known.fingerprint != vocabulary.fingerprint or not np.array_equal(
        known.token_bytes, vocabulary.token_bytes
    ):
        raise ConfigError(
            "`distillation.teacher` must read the tokens of the run: it has "
            f"{plural(len(known.token_bytes), 'token')}, the run "
            f"{len(vocabulary.token_bytes):,}, or they stand for other text. Received: "
            f"teacher={source!r}. Set `model.preset` to the preset of the teacher, "
            "which has its tokenizer."
        )
    teacher.preprocessor = None
    return teacher


def teacher_outline(source: str, dtype: str) -> keras.Model:
    """A run's teacher without values, of a preset its backbone.

    Raises:
        ConfigError: if there is no such model.
    """
    try:
        found = find_model(source, "learn from")
    except ExportRefused as error:
        raise ConfigError(f"`distillation.teacher`: {error}") from error
    if not found.endswith(".keras"):
        return outline(found, dtype)
    with zipfile.ZipFile(found) as archive:
        shape = json.loads(archive.read("config.json"))
    shape.pop("compile_config", None)  # its optimizer would be made
    with without_values():
        return compute_in(keras.saving.deserialize_keras_object(shape), dtype)


def taught(config: RunConfig, student: keras.Model, teacher: keras.Model) -> Distiller:
    """What to call `fit` of, for a compiled student to follow a teacher too.

    The teacher has the same tokens; it is not trained.
    """
    settings = config.distillation
    if teacher.output.dtype != student.output.dtype:
        logits = keras.ops.cast(teacher.output, student.output.dtype)
        teacher = keras.Model(teacher.input, logits)  # the layers are the same
    distiller = WeightedDistiller(
        teacher,
        student,
        FloatLogits(settings.temperature, settings.top_k),
        student_loss_weight=1.0 - settings.weight,
    )
    distiller.compile(
        optimizer=student.optimizer,
        loss=cross_entropy(),
        **jit_argument(config.run.jit_compile),
    )
    return distiller


def teacher_bits(run: Run, teacher: keras.Model) -> float:
    """Bits a byte of a teacher, on one device, on what the models are judged by."""
    x, y, *weights = run.validation
    teacher.compile(loss=cross_entropy(), **jit_argument(run.config.run.jit_compile))
    size = min(run.config.data.batch_size, len(x))
    eval_kwargs: dict[str, Any] = {
        "batch_size": size,
        "verbose": 0,
        "return_dict": True,
    }
    if weights:
        eval_kwargs["sample_weight"] = weights[0]
    logs = keras.Model.evaluate(teacher, token_inputs(teacher, x), y, **eval_kwargs)
    return run.loss_units.of_validation(text_loss(logs))


class WeightedDistiller(Distiller):
    """Keras's `Distiller`, whose two losses take the weights of the tokens.

    That of Keras 3.15 takes sample weights and does not use them. Both losses are the
    sum of the weighted values over the number of all tokens, as in any `fit`.
    """

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """`Distiller`'s; with weights, of those."""
        if sample_weight is None:
            return super().compute_loss(x, y, y_pred, training=training)
        (distillation,) = self.distillation_losses
        text = cross_entropy()(y, y_pred, sample_weight)
        followed = distillation.compute_loss(
            self.teacher(x, training=False), y_pred, sample_weight=sample_weight
        )
        share = self.student_loss_weight
        total = share * text + (1.0 - share) * followed
        self.student_loss_tracker.update_state(text)
        self.distillation_loss_tracker.update_state(followed)
        self.total_loss_tracker.update_state(total)
        return total


class FloatLogits(LogitsDistillation):
    """Softmax and divergence in float32, whatever the logits were computed in.

    The loss is an object: given as a string, Keras 3.15 takes the divergence of the
    logits themselves (it looks for the class to apply a softmax).
    """

    def __init__(self, temperature: float, top_k: int | None) -> None:
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
            likeliest, places = keras.ops.top_k(teacher_outputs, self._top_k)
            theirs = keras.ops.take_along_axis(student_outputs, places, axis=-1)
            outputs = (likeliest, theirs)
        theirs, ours = (keras.ops.cast(o, "float32") for o in outputs)
        if sample_weight is None:
            return super().compute_loss(theirs, ours)
        probabilities = (
            keras.ops.softmax(logits / self.temperature, axis=-1)
            for logits in (theirs, ours)
        )
        return self.loss(*probabilities, sample_weight) * self.temperature**2
