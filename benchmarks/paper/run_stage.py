"""One stage: one `fit`, from a checkpoint to the next."""

import gc
import math
import time

import keras

import keras_idea as ki
from benchmarks.paper.build import (
    KeepScores,
    compile_model,
    new_model,
    new_optimizer,
    pruning_callback,
)
from benchmarks.paper.checkpoint import (
    restore_optimizer,
    restore_weights,
    take_checkpoint,
)
from benchmarks.paper.flops import (
    calibration_flops,
    stage_flops,
    step_flops,
)

#: The columns of a loss curve, one list each.
CURVE = ("step", "loss", "learning_rate", "width")


class Meter(keras.callbacks.Callback):
    """Counts what a stage really costs, and keeps its loss curve.

    It stands after `IdeaPruneCallback`, so that it sees a model that was narrowed
    before the step.

    Args:
        every: int, steps between two points of the curve.
        width: int, neurons of each FFN at the beginning.
        ffns: list of `FFN` handles: whose width may change.
        tick: function of the steps just done, or None.
    """

    # What it does at the end of a batch is Python alone.
    async_safe = True

    def __init__(self, every, width, ffns, tick=None):
        super().__init__()
        self.every = every
        #: dict of physical width to the steps taken at it.
        self.steps_at: dict[int, int] = {}
        self._width, self._ffns, self._tick = width, ffns, tick
        self._means: dict[int, float] = {}
        self._alive: dict[int, float] = {}

    def on_train_batch_begin(self, batch, logs=None):
        """Counts the step at the width that the FFNs have."""
        if self._ffns:
            self._width = self._ffns[0].hidden_dim
        self.steps_at[self._width] = self.steps_at.get(self._width, 0) + 1

    def on_train_batch_end(self, batch, logs=None):
        """Keeps the mean loss up to now, where a point of the curve is due."""
        step = batch + 1
        if step % self.every == 0 or step == self.params["steps"]:
            self._means[step] = float(logs.get("student_loss", logs["loss"]))
            self._alive[step] = float(logs.get("width", self._width))
        if self._tick is not None:
            self._tick(1)

    def curve(self, stage):
        """The curve of the stage.

        Args:
            stage: the `Stage` that was carried out.

        Returns:
            dict of the lists `CURVE`: the step of the whole run, bits per byte
            since the point before, the learning rate of the step, living neurons.
        """
        rates = stage.rate.values(stage.steps)
        points: dict[str, list] = {name: [] for name in CURVE}
        before, total = 0, 0.0
        for step, mean in sorted(self._means.items()):
            nats = (mean * step - total) / (step - before)
            before, total = step, mean * step
            row = (
                stage.first_batch + step,
                nats / math.log(2.0),
                rates[step - 1],
                self._alive[step],
            )
            for name, value in zip(CURVE, row, strict=True):
                points[name].append(value)
        return points


def run_stage(stage, scale, corpus, seed, start=None, teacher=None, tick=None):
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
    iterations = 0 if stage.fresh else start.iterations
    optimizer = new_optimizer(stage, scale, iterations)
    if start is not None:
        restore_weights(model, start, scores=not stage.fresh)
    if not stage.fresh:
        restore_optimizer(optimizer, model, start)
    fitted = compile_model(model, optimizer, _teacher_model(stage, scale, teacher))
    callbacks = []
    if stage.pruning is not None:
        callbacks.append(pruning_callback(stage, scale, corpus, seed, iterations))
    elif stage.scores is not None:
        callbacks.append(KeepScores())
    every = max(1, round(scale.total_steps / scale.curve_points))
    meter = Meter(every, stage.width, ki.find_ffns(model), tick)
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
        callbacks=[*callbacks, meter],
        verbose=0,
    )
    costs = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu_began,
    }
    record = _record(stage, scale, meter, costs, start)
    checkpoint = take_checkpoint(model, optimizer, record)
    # A model is a circle of references; the next stage wants its memory.
    del model, fitted, optimizer, meter, callbacks
    gc.collect()
    return checkpoint


def _teacher_model(stage, scale, teacher):
    if teacher is None:
        return None
    model = new_model(scale, stage.teacher.width)
    restore_weights(model, teacher)
    return model


def _record(stage, scale, meter, costs, start):
    """What is known of the run up to the end of this stage."""
    before = {} if start is None else start.record
    teacher_width = stage.teacher and stage.teacher.width
    spent = sum(
        steps * step_flops(scale, width, teacher_width)
        for width, steps in meter.steps_at.items()
    )
    modes = {
        "flops_predicted": None,
        "flops_masked": "off",
        "flops_cubic": "cubic",
    }
    numbers = {
        "steps": stage.steps,
        "tokens": stage.steps * scale.tokens_a_step,
        "flops": spent + calibration_flops(stage, scale),
        **{name: stage_flops(stage, scale, mode) for name, mode in modes.items()},
        **costs,
    }
    curve = meter.curve(stage)
    last = {"name": stage.name, "last": stage.first_batch + stage.steps}
    return {
        **{name: before.get(name, 0) + value for name, value in numbers.items()},
        "curve": {
            name: before.get("curve", {}).get(name, []) + curve[name] for name in CURVE
        },
        "stages": [*before.get("stages", []), last],
    }
