"""What a run is going to do and to cost, before it begins."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import keras

from keras_idea.extras import require
from keras_idea.functional.counts import train_flops
from keras_idea.monitor.work_count import multiply_adds
from keras_idea.runs.build import cosine
from keras_idea.runs.config import RunConfig
from keras_idea.runs.prepare import describe, prepare
from keras_idea.runs.run import SCRATCH
from keras_idea.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

# Bytes of a parameter in float32: itself, its gradient and AdamW's two slots.
_BYTES_A_PARAMETER = 16


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """One stage of a run.

    Attributes:
        name: str.
        steps: int, optimizer steps.
        tokens: int, tokens read.
        widths: pair of int, neurons of an FFN that live, at its begin and end.
        learning_rates: pair of float, of its first and its last step.
        flops: float, operations of its training, all products of matrices, FFNs as
            wide as they are physically.
    """

    name: str
    steps: int
    tokens: int
    widths: tuple[int, int]
    learning_rates: tuple[float, float]
    flops: float


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """A run, planned.

    Attributes:
        text: str, what is read, some lines.
        parameters: pair of int, of the wide model and of the narrow one.
        stages: list of `StagePlan`; the last is the training from scratch, if any.
    """

    text: str
    parameters: tuple[int, int]
    stages: list[StagePlan]


def plan(config: RunConfig) -> RunPlan:
    """What a run would do; no model is trained, and no run folder is made.

    Of `[corpus]` the tokens are made here already, if they are not in their cache.

    Args:
        config: `RunConfig`.

    Returns:
        `RunPlan`.

    Raises:
        ConfigError, TextError: as `train`.

    Example:
    >>> from keras_idea.runs.config import load_config
    >>> for stage in plan(load_config("run.toml")).stages:
    ...     print(stage.name, stage.steps, stage.widths)
    enlarged 4 (32, 32)
    pruning 3 (32, 8)
    recovery 5 (8, 8)
    narrow from scratch 12 (8, 8)
    """
    run = prepare(config, RunFolder(config.run.output))
    models, timeline, rate = run.models, run.timeline, cosine(config)
    wide, narrow = timeline.wide, timeline.narrow
    length = config.model.sequence_length
    sizes = [_size(models.plain(width), length) for width in (wide, narrow)]
    tokens = config.data.batch_size * length

    def stage(
        name: str,
        first: int,
        last: int,
        alive: tuple[int, int],
        physical: Mapping[int, int],
    ) -> StagePlan:
        return StagePlan(
            name,
            last - first,
            (last - first) * tokens,
            alive,
            (float(rate(first)), float(rate(last - 1))),
            sum(
                steps * train_flops(_between(sizes, (wide, narrow), width), tokens)
                for steps, width in _pieces(physical, first, last)
            ),
        )

    alive = {"enlarged": (wide, wide), "pruning": (wide, narrow)}
    at_end, in_run = (narrow, narrow), {0: wide, **timeline.compactions}
    stages = [
        stage(name, first, last, alive.get(name, at_end), in_run)
        for name, first, last in timeline.stages
    ]
    if config.run.compare_from_scratch:
        stages.append(stage(SCRATCH, 0, timeline.total, at_end, {0: narrow}))
    (of_wide, _), (of_narrow, _) = sizes
    described = describe(models.corpus, run.folder.path)
    return RunPlan(described, (of_wide, of_narrow), stages)


def print_plan(planned: RunPlan, console: "Console | None" = None) -> None:
    """Prints a `RunPlan` as a table.

    Args:
        planned: `RunPlan`.
        console: `rich.console.Console` or None: the standard output.

    Raises:
        MissingPackage: if rich is not installed.
    """
    require("rich", "Printing a plan", "cli")
    import rich.box
    import rich.console
    import rich.table

    console = console or rich.console.Console()
    columns = ["stage", "steps", "tokens", "neurons", "learning rate", "train FLOPs"]
    table = rich.table.Table(box=rich.box.SIMPLE)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for stage in planned.stages:
        table.add_row(
            stage.name,
            f"{stage.steps:,}",
            f"{stage.tokens:,}",
            _pair("{:,}", stage.widths),
            _pair("{:.2g}", stage.learning_rates),
            f"{stage.flops:.3g}",
        )
    wide, narrow = planned.parameters
    console.print(planned.text, highlight=False)
    console.print(table)
    console.print(
        f"Parameters: {wide:,} wide, {narrow:,} narrow. While training wide, weights, "
        f"gradients and AdamW take {wide * _BYTES_A_PARAMETER / 1e6:,.0f} MB in "
        "float32; activations come on top.",
        highlight=False,
    )


def _size(model: keras.Model, length: int) -> tuple[int, int]:
    return model.count_params(), multiply_adds(model, length)


def _pieces(
    widths: Mapping[int, int], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Pairs (steps, width) of a stage; `widths`: by the step from which they hold."""
    steps = sorted(widths)
    for step, until in zip(steps, [*steps[1:], last], strict=True):
        length = min(until, last) - max(step, first)
        if length > 0:
            yield length, widths[step]


def _between(
    sizes: list[tuple[int, int]], widths: tuple[int, int], width: int
) -> float:
    """Multiply-adds of a token at a width: linear in it."""
    (_, wide), (_, narrow) = sizes
    return narrow + (wide - narrow) * (width - widths[1]) / (widths[0] - widths[1])


def _pair(form: str, pair: tuple[float, float]) -> str:
    begin, end = map(form.format, pair)
    return begin if begin == end else f"{begin} to {end}"
