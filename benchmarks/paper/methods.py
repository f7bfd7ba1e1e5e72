"""The pruning methods of the tables: a new one is a row here."""

import dataclasses
import types
from collections.abc import Callable

import keras_idea as ki
from benchmarks.paper.scale import Scale
from keras_idea.data import Corpus


@dataclasses.dataclass(frozen=True)
class PaperMethod:
    """What the tables must know of a method.

    Attributes:
        make: its object, of (scores, scale, corpus, seed, number of the stage's first
            batch).
        label: str, its name in the tables.
        gradual: bool, whether neurons go one by one, as the cubic schedule says; else
            all at once, when it decides.
        one_shot: bool, whether it decides before a stage's first step, so that there
            is no stage of pruning.
        awaits_warmup: bool, whether under a restarted learning rate it begins after
            the warm-up (the paper's T_w).
        calibrates: bool, whether it costs forward passes of the calibration samples.
    """

    make: Callable[[tuple, Scale, Corpus, int, int], ki.methods.Method]
    label: str
    gradual: bool = False
    one_shot: bool = False
    awaits_warmup: bool = False
    calibrates: bool = False


def _activation(scores, scale, corpus, seed, first_batch):
    samples, _ = corpus.batch(
        # No batch of the training: of a stream of its own.
        first_batch,
        seed=seed + 1_000_003,
        batch_size=scale.calibration_samples,
        length=scale.sequence_length,
    )
    return ki.methods.Activation(
        samples, num_samples=scale.calibration_samples, batch_size=scale.batch_size
    )


METHODS = types.MappingProxyType(
    {
        "sensitivity": PaperMethod(
            lambda scores, *rest: ki.methods.Sensitivity(*scores),
            "sensitivity",
            gradual=True,
            awaits_warmup=True,
        ),
        "random": PaperMethod(
            lambda scores, scale, corpus, seed, batch: ki.methods.Random(seed=seed),
            "random",
            one_shot=True,
        ),
        "activation": PaperMethod(
            _activation, "activation", one_shot=True, calibrates=True
        ),
        "learned_mask": PaperMethod(
            lambda scores, scale, corpus, seed, batch: ki.methods.LearnedMask(
                seed=seed
            ),
            "learned mask",
        ),
    }
)
