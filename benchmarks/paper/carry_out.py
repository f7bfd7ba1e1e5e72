"""The one function that carries out any cell."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.paper.build import cross_entropy, new_model
from benchmarks.paper.checkpoint import Checkpoint
from benchmarks.paper.flops import stage_flops
from benchmarks.paper.plan import plan
from benchmarks.paper.run_stage import run_stage
from benchmarks.paper.scale import Scale
from benchmarks.paper.store import Store, versions
from keras_idea.data import Corpus


@dataclasses.dataclass
class Laboratory:
    """What carrying out cells takes.

    Attributes:
        scale: `Scale`.
        corpus: `Corpus`.
        store: `Store`.
        tick: function called with the number of steps just done, or None.
    """

    scale: Scale
    corpus: Corpus
    store: Store
    tick: Callable[[int], Any] | None = None

    def __post_init__(self):
        self.evaluator = Evaluator(self.scale, self.corpus)


class Evaluator:
    """Bits per byte on the held-out text; one compiled model for each width."""

    def __init__(self, scale: Scale, corpus: Corpus):
        self._scale, self._models = scale, {}
        x, y = corpus.validation_windows(
            length=scale.sequence_length, limit=scale.validation_windows
        )
        # Whole batches: a shorter last one would be compiled for itself.
        self._batch = min(scale.batch_size, len(x))
        whole = len(x) - len(x) % self._batch
        self._data = x[:whole], y[:whole]

    def bits_per_byte(self, checkpoint: Checkpoint) -> float:
        """Judges a model at the width it has; NaN if training diverged."""
        width = checkpoint.width
        if width not in self._models:
            self._models[width] = new_model(self._scale, width)
            self._models[width].compile(loss=cross_entropy())
        model = self._models[width]
        checkpoint.give_weights(model)
        nats = model.evaluate(*self._data, batch_size=self._batch, verbose=0)
        return float(nats) / math.log(2.0)


def carry_out(cell, laboratory: Laboratory, seed: int) -> dict:
    """Carries out a cell, unless it is finished; its result, as it was saved."""
    scale, store = laboratory.scale, laboratory.store
    finished = store.result(cell, seed)
    if finished is not None:
        return finished
    stages = plan(cell, scale)
    end = None
    for stage in stages:
        end = reach_end(stage, laboratory, seed, end)
    bits = laboratory.evaluator.bits_per_byte(end)
    steps = sum(stage.steps for stage in stages)
    result = {
        "cell": dataclasses.asdict(cell),
        "scale": dataclasses.asdict(scale),
        "seed": seed,
        "bits_per_byte": bits if math.isfinite(bits) else None,
        "width": end.width,
        "steps": steps,
        "tokens": steps * scale.tokens_a_step,
        **end.record,
        "flops_predicted": _flops(stages, scale),
        "flops_masked": _flops(stages, scale, "off"),
        "flops_cubic": _flops(stages, scale, "cubic"),
        "stages": [
            {"name": stage.name, "last": stage.first_batch + stage.steps}
            for stage in stages
        ],
        "data": laboratory.corpus.description,
        "backend": keras.backend.backend(),
        "versions": versions(),
    }
    store.save_result(cell, seed, result)
    return result


def _flops(stages, scale, compact=None):
    return sum(stage_flops(stage, scale, compact) for stage in stages)


def reach_end(stage, laboratory: Laboratory, seed: int, start=None) -> Checkpoint:
    """The model at the end of a stage: from the store, or by training.

    Args:
        stage: `Stage`.
        laboratory: `Laboratory`.
        seed: int.
        start: `Checkpoint` at the end of the stage before, or None.
    """
    store = laboratory.store
    teacher = stage.teacher and reach_end(stage.teacher, laboratory, seed)
    rest = stage
    if stage.shared:
        start = store.nearest_prefix(stage, seed)
        done = 0 if start is None else start.iterations
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
    scale, corpus = laboratory.scale, laboratory.corpus
    end = run_stage(rest, scale, corpus, seed, start, teacher, laboratory.tick)
    if stage.shared:
        store.save_prefix(stage, seed, end)
    return end
