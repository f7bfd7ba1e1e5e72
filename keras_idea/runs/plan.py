"""What a run is going to do and to cost, before it begins."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from keras_idea.functional.counts import train_flops
from keras_idea.runs.compiled_step import CompiledStep, compiled_step
from keras_idea.runs.compiling import cosine
from keras_idea.runs.config import RunConfig
from keras_idea.runs.footprint import Footprint, footprint
from keras_idea.runs.prepare import describe, prepare
from keras_idea.runs.run import SCRATCH
from keras_idea.runs.run_folder import RunFolder
from keras_idea.runs.targets import Target


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
        footprints: dict of when it is so, to `Footprint`: wide, after each narrowing.
        mesh: pair of int, devices of the axes data and model.
        compiled: dict of a width to `CompiledStep`; empty if no compiler was asked.
        target: `Target` or None.
    """

    text: str
    parameters: tuple[int, int]
    stages: list[StagePlan]
    footprints: dict[str, Footprint]
    mesh: tuple[int, int] = (1, 1)
    compiled: dict[int, CompiledStep] = dataclasses.field(default_factory=dict)
    target: Target | None = None

    def hours(self, utilisation: float) -> float | None:
        """Hours of all stages on the target.

        Args:
            utilisation: float in (0, 1], the share of the devices' peak rate that
                training makes use of.

        Returns:
            float, or None: there is no target.
        """
        if self.target is None:
            return None
        rate = self.target.kind.flops * math.prod(self.mesh) * utilisation
        return sum(stage.flops for stage in self.stages) / rate / 3600


def plan(
    config: RunConfig, target: Target | None = None, compile_step: bool = False
) -> RunPlan:
    """What a run would do; no model is trained or made, and no run folder.

    Of `[corpus]` the tokens are made here already, if they are not in their cache.

    Args:
        config: `RunConfig`.
        target: `Target`, the devices that it is planned for, or None.
        compile_step: bool, whether a compiler is asked for the bytes: of TPUs
            libtpu's, else that of this process's devices. Default False.

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
    widths = {"wide": wide}
    for step, width in timeline.compactions.items():
        widths[f"from step {step}"] = width
    widths["narrow"] = narrow
    footprints = {
        when: footprint(config, models.outline, width) for when, width in widths.items()
    }
    sizes = [footprints["wide"].multiply_adds, footprints["narrow"].multiply_adds]
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
    compiled = {}
    if compile_step:
        tpu = target if target is not None and target.kind.tpu else None
        for width in (wide, narrow):
            compiled[width] = compiled_step(config, models.outline, width, tpu)
    return RunPlan(
        describe(models.corpus, run.folder.path),
        (footprints["wide"].parameters, footprints["narrow"].parameters),
        stages,
        footprints,
        config.distribution.size,
        compiled,
        target,
    )


def _pieces(
    widths: Mapping[int, int], first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Pairs (steps, width) of a stage; `widths`: by the step from which they hold."""
    steps = sorted(widths)
    for step, until in zip(steps, [*steps[1:], last], strict=True):
        length = min(until, last) - max(step, first)
        if length > 0:
            yield length, widths[step]


def _between(sizes: list[int], widths: tuple[int, int], width: int) -> float:
    """Multiply-adds of a token at a width: linear in it."""
    wide, narrow = sizes
    return narrow + (wide - narrow) * (width - widths[1]) / (widths[0] - widths[1])
