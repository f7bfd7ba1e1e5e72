"""Models, optimizers and pruning callbacks of a stage, from its data."""

import dataclasses
import types
from collections.abc import Callable

import keras
from keras.distillation import Distiller, LogitsDistillation

import keras_idea as ki
from benchmarks.paper.methods import METHODS
from keras_idea.groups.state import Scoring
from keras_idea.models import decoder
from keras_idea.step.pruner import NeuronPruner
from keras_idea.step.track import only_scored

#: How a teacher is followed; the paper says nothing of either.
DISTILLATION_TEMPERATURE, STUDENT_LOSS_WEIGHT = 1.0, 0.5


@dataclasses.dataclass(frozen=True)
class OptimizerKind:
    """An optimizer, and its rates in units of the scale's (which are AdamW's).

    Attributes:
        make: function `make(learning_rate, weight_decay=...)`.
        peak: float, factor of the learning rates.
        weight_decay: float, factor of the weight decay.
    """

    make: Callable
    peak: float = 1.0
    weight_decay: float = 1.0


def _muon(learning_rate, weight_decay):
    # The logits' matrix by AdamW, as the embedding is, which Muon asks for.
    return keras.optimizers.Muon(
        learning_rate,
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
        exclude_layers=["logits"],
    )


# The factors: the best of 1/10, 1/3, 1, 3, 10 for training from scratch at tiny.
OPTIMIZERS = types.MappingProxyType(
    {
        "adamw": OptimizerKind(keras.optimizers.AdamW),
        "lion": OptimizerKind(keras.optimizers.Lion, peak=0.1, weight_decay=10.0),
        "muon": OptimizerKind(_muon, peak=1.0),
        "adafactor": OptimizerKind(keras.optimizers.Adafactor, peak=10.0),
    }
)


def new_model(scale, width: int, scores: tuple | None = None) -> keras.Model:
    """A decoder, bytes to logits, that is not compiled yet.

    Args:
        scale: `Scale`.
        width: int, neurons of each FFN.
        scores: None for plain FFNs, or (ema_decay, row_reduce, matrix_reduce).
    """
    ffn: Callable = ki.GatedFFN if scores is None else ki.PrunableGatedFFN
    model = decoder(scale.decoder_config(width), ffn=ffn, dtype=scale.dtype)
    if scores is not None:
        # The stage that only keeps score has no method to say it.
        for found in ki.find_ffns(model):
            found.state.score_by(Scoring(*scores))
    return model


def new_optimizer(stage, scale, schedule) -> keras.optimizers.Optimizer:
    """The optimizer of a stage under its learning rate, not built."""
    kind = OPTIMIZERS[stage.optimizer]
    weight_decay = kind.weight_decay * scale.weight_decay
    betas = {"beta_2": scale.beta_2} if stage.optimizer == "adamw" else {}
    return kind.make(schedule, weight_decay=weight_decay, **betas)


def cross_entropy() -> keras.losses.Loss:
    """The loss of all models, in nats a byte."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def taught(student: keras.Model, teacher: keras.Model) -> Distiller:
    """What to call `fit` of, for a compiled student to follow a teacher too."""
    # An object: given as a string the divergence would be taken of the logits
    # themselves (Keras 3.15 looks for the class to apply a softmax).
    divergence = keras.losses.KLDivergence()
    distiller = Distiller(
        teacher,
        student,
        LogitsDistillation(DISTILLATION_TEMPERATURE, loss=divergence),
        student_loss_weight=STUDENT_LOSS_WEIGHT,
    )
    distiller.compile(optimizer=student.optimizer, loss=cross_entropy())
    return distiller


class KeepScores(keras.callbacks.Callback):
    """Keeps score of neurons and prunes none: a later stage of the run will."""

    def on_train_begin(self, logs=None):
        """Sets a pruner without a schedule to work."""
        self._pruner = NeuronPruner(map(only_scored, ki.find_ffns(self.model)))
        self._pruner.attach(self.model)

    def on_train_end(self, logs=None):
        """Takes it off; the scores stay."""
        self._pruner.detach(self.model)


def pruning_callbacks(stage, scale, corpus, seed, iterations) -> list:
    """The callback of a stage that prunes, or that keeps score; else none.

    Args:
        stage: `Stage`.
        scale: `Scale`.
        corpus: `Corpus`, for methods that look at text.
        seed: int.
        iterations: int, updates that the optimizer has done when it begins.
    """
    pruning = stage.pruning
    if pruning is None:
        return [] if stage.scores is None else [KeepScores()]
    made_of = (stage.scores, scale, corpus, seed, stage.first_batch)
    method = METHODS[pruning.method].make(*made_of)
    return [
        ki.IdeaPruneCallback(
            pruning.target,
            iterations + pruning.begin,
            pruning.steps,
            method=method,
            compact=pruning.compact,
            update_every=pruning.update_every,
        )
    ]
