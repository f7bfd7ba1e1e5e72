"""One stage: one `fit`, from a checkpoint to the next."""

import gc
import math
import time

import keras

from benchmarks.paper.build import (
    cross_entropy,
    new_model,
    new_optimizer,
    pruning_callbacks,
    taught,
)
from benchmarks.paper.checkpoint import Checkpoint, take_checkpoint
from benchmarks.paper.flops import calibration_flops, forward_flops
from benchmarks.paper.initial import initialise
from keras_idea.finding.work_count import WorkCount
from keras_idea.functional.counts import mean_between, train_flops
from keras_idea.surgery import find_ffns

#: The columns of a loss curve, one list each.
CURVE = ("step", "loss", "learning_rate", "width")


class Meter(keras.callbacks.Callback):
    """Counts what a stage really costs, and keeps its loss curve.

    It stands after `IdeaPruneCallback`, so that it sees a model that was narrowed
    before the step.

    Args:
        student: the decoder that is trained.
        stage: `Stage`.
        scale: `Scale`.
        tick: function of the steps just done, or None.
    """

    # What it does at the end of a batch is Python alone.
    async_safe = True

    def __init__(self, student, stage, scale, tick=None):
        super().__init__()
        self._every = max(1, round(scale.total_steps / scale.curve_points))
        self._work = WorkCount(student, scale.sequence_length)
        self._stage, self._scale, self._tick = stage, scale, tick
        self._points: dict[int, tuple] = {0: (0.0, stage.width)}

    def on_train_batch_begin(self, batch, logs=None):
        """Counts the step before at the width that it had."""
        self._work.after(batch)

    def on_train_batch_end(self, batch, logs=None):
        """Keeps the mean loss up to now, where a point of the curve is due."""
        step = batch + 1
        if step % self._every == 0 or step == self._stage.steps:
            loss = float(logs.get("student_loss", logs["loss"]))
            self._points[step] = loss, float(logs.get("width", self._stage.width))
        if self._tick is not None:
            self._tick(1)

    def flops(self) -> int:
        """Operations of the stage, with those of its teacher and its calibration."""
        stage, scale = self._stage, self._scale
        spent = train_flops(self._work.after(stage.steps), scale.tokens_a_step)
        if stage.teacher is not None:
            spent += stage.steps * forward_flops(scale, stage.teacher.width)
        return spent + calibration_flops(stage, scale)

    def curve(self) -> dict[str, list]:
        """Lists `CURVE`: step of the run, bits per byte since the point before, ..."""
        points, rate = sorted(self._points.items()), self._stage.rate.schedule()
        rows = [
            (
                self._stage.first_batch + step,
                mean_between((before, earlier), (step, mean)) / math.log(2.0),
                float(rate(step - 1)),
                width,
            )
            for (before, (earlier, _)), (step, (mean, width)) in zip(
                points, points[1:], strict=False
            )
        ]
        return dict(zip(CURVE, map(list, zip(*rows, strict=True)), strict=True))


def run_stage(
    stage, scale, corpus, seed, start=None, teacher=None, tick=None
) -> Checkpoint:
    """Carries out one stage.

    Args:
        stage: `Stage`.
        scale: `Scale`.
        corpus: `Corpus`.
        seed: int, of the weights, the batches and the method.
        start: `Checkpoint` that it begins with, or None: a new model.
        teacher: `Checkpoint` of the teacher, or None.
        tick: function called with the number of steps just done, or None.

    Returns:
        `Checkpoint`, whose record tells of the whole run up to here.
    """
    keras.utils.set_random_seed(seed)
    model = new_model(scale, stage.width, stage.scores)
    if start is None:
        initialise(model, scale, seed)
    iterations = 0 if stage.fresh else start.iterations
    optimizer = new_optimizer(stage, scale, stage.rate.schedule(iterations))
    model.compile(optimizer=optimizer, loss=cross_entropy())
    if start is not None:
        (start.give_weights if stage.fresh else start.restore)(model)
    fitted = model
    if teacher is not None:
        known = new_model(scale, stage.teacher.width)
        teacher.give_weights(known)
        fitted = taught(model, known)
    meter = Meter(model, stage, scale, tick)
    pruning = pruning_callbacks(stage, scale, corpus, seed, iterations)
    began, cpu_began = time.perf_counter(), time.process_time()
    fitted.fit(
        corpus.batches(
            seed=seed,
            batch_size=scale.batch_size,
            length=scale.sequence_length,
            start_step=stage.first_batch,
        ),
        steps_per_epoch=stage.steps,
        shuffle=False,
        callbacks=[*pruning, meter],
        verbose=0,
    )
    costs = {
        "flops": meter.flops(),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
    }
    record = _joined({} if start is None else start.record, costs, meter.curve())
    checkpoint = take_checkpoint(model, find_ffns(model)[0].hidden_dim, record)
    # A model is a circle of references; the next stage wants its memory.
    del model, fitted, optimizer, meter, pruning
    gc.collect()
    return checkpoint


def _joined(before, costs, curve):
    """What is known of the run up to the end of this stage."""
    earlier = before.get("curve", {})
    return {
        **{name: before.get(name, 0) + value for name, value in costs.items()},
        "curve": {name: earlier.get(name, []) + curve[name] for name in CURVE},
    }
