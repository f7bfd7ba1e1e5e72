"""What the models of a run cost, measured when they are trained."""

import dataclasses
import math
from collections.abc import Mapping

import keras

from keras_idea.lm.report.table import ResultRow
from keras_idea.lm.runs.train.run import NARROW, SCRATCH, WIDE, Run
from keras_idea.lm.runs.train.time_limit import shown, time_limit
from keras_idea.lm.runs.train.timing import Timed, generation_speeds

# Steps of pruning from which on their median is taken.
_ENOUGH = 3


@dataclasses.dataclass(frozen=True)
class Costs:
    """What `measure` found.

    Attributes:
        rows: dict of `WIDE` and of the name of each training to `ResultRow`, without a
            loss.
        left_out: str, what was not measured, or only briefly; "": nothing.
    """

    rows: Mapping[str, ResultRow]
    left_out: str


def measure(run: Run, narrow: keras.Model, prompt: str) -> Costs:
    """What the models cost: a step of the training, and generated text.

    `narrow` is the one that was pruned; generated text continues `prompt`. The time of
    a step is the median over the run's own steps: wide ones with pruning, if there are
    enough, and those after the last narrowing. Generation takes at most a tenth of the
    training's time, or 30 seconds: what that is too short for is left out.
    """
    measured, speeds = run.config.run.measure, Timed({})
    if measured:
        speeds = _generation(run, narrow, prompt)

    def cost(name: str, model: str, size: int, step_ms: float | None) -> ResultRow:
        speed = speeds.values.get(model)
        return ResultRow(
            name,
            parameters=size,
            step_ms=step_ms if measured else None,
            generation_speed=None if speed is None else speed * run.loss_units.train,
        )

    timeline, pruned = run.timeline, run.recorders[0]
    narrowed = list(timeline.compactions) or [timeline.total]
    begin = timeline.begin if narrowed[0] - timeline.begin >= _ENOUGH else 0
    wide = run.outline.make(run.models.at_start).count_params()
    rows = {WIDE: cost(WIDE, WIDE, wide, pruned.step_ms(begin, narrowed[0]))}
    for each in run.recorders:
        step_ms = each.step_ms(0 if each.name == SCRATCH else narrowed[-1])
        rows[each.name] = cost(each.name, NARROW, narrow.count_params(), step_ms)
    return Costs(rows, _note(speeds) if measured else "")


def _generation(run: Run, narrow: keras.Model, prompt: str) -> Timed:
    """Tokens that the wide and the narrow model generate per second."""
    limit = time_limit(run.recorders)
    print(
        f"\nMeasuring generation speed: at most {limit.seconds:,.0f} s, none with "
        "`run.measure = false`",
        flush=True,
    )
    with shown(limit) as show:
        show("making the wide model")
        made = {WIDE: run.models.plain(run.models.at_start), NARROW: narrow}
        show("generation speed")
        ids = run.models.vocabulary.encode(prompt)
        return generation_speeds(
            made,
            ids,
            run.length,
            limit,
            lambda: show("generation speed"),
            _pass_seconds(run),
        )


def _pass_seconds(run: Run) -> float:
    """Seconds of a pass over one text, at most: its part of a step, on one device."""
    slowest = max((each.step_ms() or math.inf) for each in run.recorders)
    devices = math.prod(run.config.distribution.size)
    return slowest / 1000 * devices / run.config.data.batch_size


def _note(speeds: Timed) -> str:
    if not speeds.values:
        return "Generation speed: left out, there was no time for it."
    return f"Generation speed: measured briefly ({speeds.brief})." * bool(speeds.brief)
