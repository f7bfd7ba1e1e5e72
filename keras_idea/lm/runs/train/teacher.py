"""A teacher whose logits a run's models follow besides the text."""

import json
import zipfile
from typing import Any

import keras
import numpy as np
from keras.distillation import Distiller

from keras_idea.distillation import distiller
from keras_idea.errors import ConfigError, ExportRefused
from keras_idea.hub.inputs import token_inputs
from keras_idea.hub.loading import outline
from keras_idea.keras_private.variables import without_values
from keras_idea.lm.data.vocabulary import Vocabulary
from keras_idea.lm.export.load import find_model, load_run
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.judge.judged import ADD_TOKENIZER, vocabulary_of
from keras_idea.lm.runs.models.compiling import cross_entropy, jit_argument
from keras_idea.lm.runs.train.devices import rows_at_once
from keras_idea.lm.runs.train.recorder import text_loss
from keras_idea.lm.runs.train.run import Run
from keras_idea.models.decoder import compute_in
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
    return distiller(
        teacher,
        student,
        temperature=settings.temperature,
        weight=settings.weight,
        features=settings.features,
        top_k=settings.top_k,
    )


def teacher_bits(run: Run, teacher: keras.Model) -> float:
    """Bits a byte of a teacher, on one device, on what the models are judged by."""
    x, y, *weights = run.validation
    teacher.compile(loss=cross_entropy(), **jit_argument(run.config.run.jit_compile))
    most = run.config.data.batch_size // run.config.micro_batches
    eval_kwargs: dict[str, Any] = {
        "batch_size": rows_at_once(len(x), most, 1),
        "verbose": 0,
        "return_dict": True,
    }
    if weights:
        eval_kwargs["sample_weight"] = weights[0]
    logs = keras.Model.evaluate(teacher, token_inputs(teacher, x), y, **eval_kwargs)
    return run.loss_units.of_validation(text_loss(logs))
