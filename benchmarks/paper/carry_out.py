"""The one function that carries out any cell."""

import dataclasses
import math

import keras

from benchmarks.paper.build import new_model
from benchmarks.paper.checkpoint import restore_weights
from benchmarks.paper.plan import plan
from benchmarks.paper.run_stage import run_stage
from benchmarks.paper.store import versions


@dataclasses.dataclass
class Laboratory:
    """What carrying out cells takes.

    Attributes:
        scale: `Scale`.
        corpus: `Corpus`.
        store: `Store`.
        tick: function called with the number of steps just done, or None.
    """

    scale: object
    corpus: object
    store: object
    tick: object = None

    def __post_init__(self):
        self.evaluator = Evaluator(self.scale, self.corpus)


class Evaluator:
    """Bits per byte on the held-out text; one compiled model for each width.

    Args:
        scale: `Scale`.
        corpus: `Corpus`.
    """

    def __init__(self, scale, corpus):
        self._scale, self._models = scale, {}
        x, y = corpus.validation_windows(
            length=scale.sequence_length, limit=scale.validation_windows
        )
        # Whole batches: a shorter last one would be compiled for itself.
        self._batch = min(scale.batch_size, len(x))
        whole = len(x) - len(x) % self._batch
        self._data = x[:whole], y[:whole]

    def bits_per_byte(self, checkpoint):
        """Judges the model of a checkpoint, at the width it has.

        Args:
            checkpoint: `Checkpoint`.

        Returns:
            float; NaN if training diverged.
        """
        width = checkpoint.width
        if width not in self._models:
            model = new_model(self._scale, width)
            model.compile(
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            )
            self._models[width] = model
        model = self._models[width]
        restore_weights(model, checkpoint)
        nats = model.evaluate(*self._data, batch_size=self._batch, verbose=0)
        return float(nats) / math.log(2.0)


def carry_out(cell, laboratory, seed):
    """Carries out a cell, unless it is finished.

    Args:
        cell: `Cell`.
        laboratory: `Laboratory`.
        seed: int >= 0.

    Returns:
        dict, the result, as it was saved.
    """
    finished = laboratory.store.result(cell, seed)
    if finished is not None:
        return finished
    first, *later = plan(cell, laboratory.scale)
    checkpoint = reach_end(first, laboratory, seed)
    for stage in later:
        checkpoint = reach_end(stage, laboratory, seed, checkpoint)
    bits = laboratory.evaluator.bits_per_byte(checkpoint)
    result = {
        "cell": dataclasses.asdict(cell),
        "scale": dataclasses.asdict(laboratory.scale),
        "seed": seed,
        "bits_per_byte": bits if math.isfinite(bits) else None,
        "width": checkpoint.width,
        **checkpoint.record,
        "data": laboratory.corpus.description,
        "backend": keras.backend.backend(),
        "versions": versions(),
    }
    laboratory.store.save_result(cell, seed, result)
    return result


def reach_end(stage, laboratory, seed, start=None):
    """The model at the end of a stage: from the store, or by training.

    Args:
        stage: `Stage`.
        laboratory: `Laboratory`.
        seed: int.
        start: `Checkpoint` at the end of the stage before, or None.

    Returns:
        `Checkpoint`.
    """
    store = laboratory.store
    teacher = stage.teacher and reach_end(stage.teacher, laboratory, seed)
    rest = stage
    if stage.shared:
        start = store.nearest_prefix(stage, seed)
        done = 0 if start is None else start.record["steps"]
        if done == stage.steps:
            return start
        if done:
            rest = dataclasses.replace(
                stage,
                steps=stage.steps - done,
                first_batch=done,
                rate=dataclasses.replace(stage.rate, first=done + 1),
                fresh=False,
            )
    checkpoint = run_stage(
        rest,
        laboratory.scale,
        laboratory.corpus,
        seed,
        start,
        teacher,
        laboratory.tick,
    )
    if stage.shared:
        store.save_prefix(stage, seed, checkpoint)
    return checkpoint
