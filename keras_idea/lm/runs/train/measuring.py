"""What the models of a run cost, measured when they are trained."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import keras
import numpy as np

from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.data.tokens.interfaces import Batch
from keras_idea.lm.report.table import ResultRow
from keras_idea.lm.runs.models.build import RunModels
from keras_idea.lm.runs.train.run import NARROW, WIDE, Run
from keras_idea.lm.runs.train.time_limit import TimeLimit, shown, time_limit
from keras_idea.lm.runs.train.timing import (
    LEAD_IN,
    Timed,
    generation_speeds,
    step_times,
)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What `measure` found.

    Attributes:
        rows: dict of `WIDE` and `NARROW` to `ResultRow`, without a loss.
        left_out: str, what was not measured, or only briefly; "": nothing.
    """

    rows: Mapping[str, ResultRow]
    left_out: str


def measure(run: Run, narrow: keras.Model, prompt: str) -> Costs:
    """What the models cost: measured at the end, on such as nobody needs any more.

    `narrow` is the one that was pruned; generated text continues `prompt`. A step of
    the wide model is one with pruning. It takes at most a tenth of the training's time,
    or 30 seconds: what that is too short for is left out.
    """
    sizes = {
        WIDE: run.outline.make(run.models.at_start).count_params(),
        NARROW: narrow.count_params(),
    }
    speeds, times, left_out = Timed({}), Timed({}), ""
    if run.config.run.measure:
        limit = time_limit(run.recorders)
        print(
            f"\nMeasuring speeds: at most {limit.seconds:,.0f} s, none with "
            "`run.measure = false`",
            flush=True,
        )
        with shown(limit) as show:
            speeds, times = _measured(run, narrow, prompt, limit, show)
        left_out = "\n".join(
            [
                *_timing_notes("Generation speed", speeds),
                *_timing_notes("Step time", times),
            ]
        )
    parts, bytes_per_token = run.config.micro_batches, run.loss_units.train
    rows = {
        name: ResultRow(
            name,
            parameters=size,
            step_ms=_scaled(times.values.get(name), parts),
            generation_speed=_scaled(speeds.values.get(name), bytes_per_token),
        )
        for name, size in sizes.items()
    }
    return Costs(rows, left_out)


def _measured(
    run: Run,
    narrow: keras.Model,
    prompt: str,
    limit: TimeLimit,
    show: Callable[[str], None],
) -> tuple[Timed, Timed]:
    """Tokens generated a second, and milliseconds of a step of a part of a batch."""
    models, length, parts = run.models, run.length, run.config.micro_batches
    show("making the wide model")
    made = {WIDE: models.plain(models.at_start), NARROW: narrow}
    to_make = limit.spent  # seconds

    def generating() -> None:
        show("generation speed")

    def training() -> None:
        show("step time")

    generating()
    half = TimeLimit((limit.seconds - limit.spent) / 2)  # the rest is for the steps
    ids = models.vocabulary.encode(prompt)
    step = _step_seconds(run) or math.inf
    speeds = generation_speeds(made, ids, length, half, generating, step)
    made.clear()
    if not limit.allows(2 * (to_make + _first_steps(run))):
        return speeds, Timed({})
    training()
    part = run.config.data.batch_size // parts
    batch = models.corpus.batch(0, seed=0, batch_size=part, length=length)
    to_train = _to_train(models, batch, parts)
    return speeds, step_times(to_train, batch, limit, training)


def _first_steps(run: Run) -> float:
    """Seconds that the first steps of one model take, as the trainings tell; or 0."""
    compiling = max(recorder.first_step for recorder in run.recorders)
    return compiling + LEAD_IN * _step_seconds(run)


def _step_seconds(run: Run) -> float:
    """Seconds of a step of a part of a batch on one device, at most; or 0."""
    of_all = max(
        (recorder.seconds - recorder.first_step) / max(1, recorder.step - 1)
        for recorder in run.recorders
    )
    devices = math.prod(run.config.distribution.size)
    return of_all * devices / run.config.micro_batches


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _timing_notes(name: str, timed: Timed) -> list[str]:
    if not timed.values:
        return [f"{name}: left out, there was no time for it."]
    return [f"{name}: measured briefly ({timed.brief})."] if timed.brief else []


def _to_train(models: RunModels, batch: Batch, parts: int) -> dict[str, keras.Model]:
    """Dict of name to model that trains: wide with pruning on, and narrow."""
    ids, following = (np.tile(array, (parts, 1)) for array in batch[:2])
    pruning = models.wide()
    prune = IdeaPruneCallback(
        begin_step=0,
        prune_steps=1,
        compact="off",
        targets=dict(models.at_start.smaller_in(models.at_end).items()),
    )
    keras.Model.fit(
        pruning,
        token_inputs(pruning, ids),
        following,
        batch_size=len(batch[0]),
        callbacks=[prune],
        verbose=0,
    )
    return {WIDE: pruning, NARROW: models.plain(models.at_end)}
