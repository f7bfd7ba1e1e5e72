"""Models, optimizers and pruning callbacks of a stage, from its data."""

import dataclasses
import functools
import types
from collections.abc import Callable

import keras
from keras.distillation import Distiller, LogitsDistillation

import keras_idea as ki
from keras_idea.models import decoder
from keras_idea.surgery.pruner import NeuronPruner

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


def new_model(scale, width, scores=None):
    """A decoder that is not compiled yet.

    Args:
        scale: `Scale`.
        width: int, neurons of each FFN.
        scores: None for plain FFNs, or (ema_decay, row_reduce, matrix_reduce).

    Returns:
        `keras.Model`, bytes to logits.
    """
    ffn: Callable = ki.GatedFFN
    if scores is not None:
        names = ("ema_decay", "row_reduce", "matrix_reduce")
        kwargs = dict(zip(names, scores, strict=True))
        ffn = functools.partial(ki.PrunableGatedFFN, **kwargs)
    return decoder(scale.decoder_config(width), ffn=ffn, dtype=scale.dtype)


def new_optimizer(stage, scale, iterations):
    """The optimizer of a stage under its learning rate.

    Args:
        stage: `Stage`.
        scale: `Scale`.
        iterations: int, updates it will be said to have done.

    Returns:
        A Keras optimizer, not built.
    """
    kind = OPTIMIZERS[stage.optimizer]
    return kind.make(
        stage.rate.schedule(iterations),
        weight_decay=kind.weight_decay * scale.weight_decay,
    )


def compile_model(model, optimizer, teacher=None):
    """Compiles a model to learn from text, and from a teacher if there is one.

    Args:
        model: the decoder.
        optimizer: a Keras optimizer.
        teacher: None, or the decoder whose predictions are followed too.

    Returns:
        What to call `fit` of: the model, or a `Distiller` of which it is the
        student.
    """
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if teacher is not None:
        # An object: given as a string the divergence would be taken of the logits
        # themselves (Keras 3.15 looks for the class to apply a softmax).
        divergence = keras.losses.KLDivergence()
        model = Distiller(
            teacher,
            model,
            LogitsDistillation(DISTILLATION_TEMPERATURE, loss=divergence),
            student_loss_weight=STUDENT_LOSS_WEIGHT,
        )
    model.compile(optimizer=optimizer, loss=loss)
    return model


class KeepScores(keras.callbacks.Callback):
    """Keeps score of neurons and prunes none: a later stage of the run will."""

    def on_train_begin(self, logs=None):
        """Sets a pruner without a schedule to work."""
        ffns = ki.find_ffns(self.model)
        self._pruner = NeuronPruner(ffns, [None] * len(ffns))
        self._pruner.attach(self.model)

    def on_train_end(self, logs=None):
        """Takes it off; the scores stay."""
        self._pruner.detach(self.model)


def _activation(scale, corpus, seed, last_batch):
    length, batch = scale.sequence_length, scale.batch_size
    samples, _ = corpus.batch(
        # No batch of the training: of a stream of its own.
        last_batch,
        seed=seed + 1_000_003,
        batch_size=scale.calibration_samples,
        length=length,
    )
    return ki.methods.Activation(
        samples, num_samples=scale.calibration_samples, batch_size=batch
    )


#: method: how its object is made from (scale, corpus, seed, first batch).
METHOD_OBJECTS = types.MappingProxyType(
    {
        "sensitivity": lambda scale, corpus, seed, batch: ki.methods.Sensitivity(),
        "random": lambda scale, corpus, seed, batch: ki.methods.Random(seed=seed),
        "activation": _activation,
        "learned_mask": lambda scale, corpus, seed, batch: ki.methods.LearnedMask(
            seed=seed
        ),
    }
)


def pruning_callback(stage, scale, corpus, seed, iterations):
    """The callback of a stage that prunes.

    Args:
        stage: `Stage` with a `pruning`.
        scale: `Scale`.
        corpus: `Corpus`, for methods that look at text.
        seed: int.
        iterations: int, updates that the optimizer has done when it begins.

    Returns:
        `IdeaPruneCallback`.
    """
    pruning = stage.pruning
    return ki.IdeaPruneCallback(
        pruning.target,
        iterations + pruning.begin,
        pruning.steps,
        method=METHOD_OBJECTS[pruning.method](scale, corpus, seed, stage.first_batch),
        compact=pruning.compact,
        update_every=pruning.update_every,
    )
