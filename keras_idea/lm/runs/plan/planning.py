"""What a run is going to do and to cost, before it begins."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from keras_idea.elastic.draw import SANDWICH, shares
from keras_idea.elastic.widths import FULL
from keras_idea.finding.work_count import multiply_adds
from keras_idea.functional.counts import train_flops
from keras_idea.groups.kinds import KindName
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.config.timeline import Timeline, make_timeline
from keras_idea.lm.runs.models.footprint import (
    Footprint,
    TeacherFootprint,
    footprint,
    teacher_footprint,
)
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.lm.runs.models.narrow_sizes import linear_in_sizes, narrow_sizes
from keras_idea.lm.runs.models.outlines import Outlines, outlines
from keras_idea.lm.runs.places import check_places
from keras_idea.lm.runs.plan.compiled_step import CompiledStep, compiled_steps
from keras_idea.lm.runs.plan.target_devices import Target
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.prepare import prepare, run_summary
from keras_idea.lm.runs.train.run import PRUNED_WITHOUT_TEACHER, SCRATCH
from keras_idea.lm.runs.train.teacher import teacher_outline


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """One stage of a run."""

    name: str
    steps: int  # of the optimizer
    tokens: int
    sizes: tuple[Sizes, Sizes]  # of what lives at its begin and end
    learning_rates: tuple[float, float]  # of its first and its last step
    # All products of matrices of its training, FFNs as wide as they are physically.
    flops: float

    def units(self, kind: KindName) -> tuple[int, int]:
        """Pair of int, the units of a kind at its begin and end."""
        begin, end = self.sizes
        return begin.by_kind()[kind], end.by_kind()[kind]


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """A run, planned."""

    text: str  # what is read, some lines
    parameters: tuple[int, int]  # of the wide model and of the narrow one
    stages: list[StagePlan]  # the last is the training from scratch, if any
    # By when it is so: wide, after each narrowing (of many, eight at most).
    footprints: dict[str, Footprint]
    teacher: TeacherFootprint | None
    mesh: tuple[int, int]  # devices of the axes data and model
    compiled: dict[Sizes, CompiledStep]  # empty if no compiler was asked
    target: Target | None
    enlargement: float  # FFN width of the wide model over that of the narrow one
    of_checkpoint: bool  # whether it begins with a preset
    # Parameters at each width of a run with [elastic], which prunes nothing.
    widths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    end_learning_rate: float = 0.0  # of the run file

    @property
    def kinds(self) -> list[KindName]:
        """List of the kinds that are pruned, neurons in any case."""
        return list(self.stages[0].sizes[0].by_kind())

    @property
    def tokens_per_parameter(self) -> float:
        """float, tokens that the pruned model reads per parameter that it keeps."""
        return sum(stage.tokens for stage in self.own_stages) / self.parameters[1]

    @property
    def own_stages(self) -> list[StagePlan]:
        """List of the stages of the pruned model, without those of its rivals."""
        return [
            stage
            for stage in self.stages
            if stage.name not in (PRUNED_WITHOUT_TEACHER, SCRATCH)
        ]

    def hours(self, utilisation: float) -> float | None:
        """Hours of all stages at a share of the peak rate; None: there is no target."""
        if self.target is None:
            return None
        rate = self.target.kind.flops * math.prod(self.mesh) * utilisation
        return sum(stage.flops for stage in self.stages) / rate / 3600


def plan(
    config: RunConfig,
    target: Target | None = None,
    compile_step: bool = False,
    read_text: bool = True,
) -> RunPlan:
    """What a run would do; no model is trained or made, and no run folder.

    Of `[corpus]` the tokens are made here already, if they are not in their cache.

    Args:
        config: `RunConfig`.
        target: `Target`, the devices that it is planned for, or None.
        compile_step: bool, whether a compiler is asked for the bytes: of TPUs
            libtpu's, else that of this process's devices.
        read_text: bool, whether the text is read. If not, a trained tokenizer is taken
            to have the tokens that are asked for.

    Raises:
        ConfigError, TextError: as `train`.

    Example:
    >>> from keras_idea.lm.runs.config import load_config
    >>> for stage in plan(load_config("run.toml")).stages:
    ...     print(stage.name, stage.steps, stage.units("neurons"))
    wide 4 (32, 32)
    pruning 3 (32, 8)
    recovery 5 (8, 8)
    narrow from scratch 12 (8, 8)
    """
    check_places(config)
    outline, text = _outline(config, read_text)
    wide, parts = outline.at_start, config.distribution.size[1]
    narrow = narrow_sizes(config.model, wide, outline.make, parts)
    timeline = make_timeline(config, wide, narrow, here=target is None)
    footprints = {"wide": footprint(config, outline, wide)}
    for step, sizes in _few(timeline.compactions):
        over = sizes == narrow
        footprints[f"from step {step:,}"] = footprint(config, outline, sizes, over)
    if narrow not in timeline.compactions.values() and not timeline.widths:
        footprints["narrow"] = footprint(config, outline, narrow, pruned=True)
    *_, last = footprints.values()
    ends = [footprints["wide"], last]
    teacher = None
    if config.distillation.teacher is not None:
        known = teacher_outline(config.distillation.teacher, config.teacher_dtype)
        teacher = teacher_footprint(config, known)
    compiled = {}
    if compile_step:
        tpu = target if target is not None and target.kind.tpu else None
        compiled = compiled_steps(config, outline, (wide, narrow), tpu)
    return RunPlan(
        text,
        (ends[0].parameters, ends[1].parameters),
        list(_stages(config, outline, timeline, teacher)),
        footprints,
        teacher,
        config.distribution.size,
        compiled,
        target,
        wide.neurons / narrow.neurons,
        config.model.preset is not None,
        {
            name: outline.make(dataclasses.replace(wide, neurons=n)).count_params()
            for name, n in timeline.widths.items()
        },
        config.optimizer.end_learning_rate,
    )


def _few(compactions: Mapping[int, Sizes], most: int = 8) -> list[tuple[int, Sizes]]:
    """So many of the narrowings, evenly, the last one among them."""
    backwards = list(compactions.items())[::-1]
    return backwards[:: -(-len(backwards) // most) or 1][::-1]


def _outline(config: RunConfig, read_text: bool) -> tuple[Outlines, str]:
    """The models in outline, and what is said of their text."""
    if read_text:
        run = prepare(config, RunFolder(config.run.output))
        return run.outline, run_summary(run)
    outline = outlines(config)
    return outline, f"Text: not read. Vocabulary: {outline.vocabulary_size:,} tokens"


def _stages(
    config: RunConfig,
    outline: Outlines,
    timeline: Timeline,
    teacher: TeacherFootprint | None,
) -> Iterator[StagePlan]:
    length = config.model.sequence_length
    work = linear_in_sizes(
        outline.make,
        lambda model: [multiply_adds(model, length)],
        timeline.wide,
        list(timeline.wide.by_kind()),
    )
    wide, narrow, last_step = timeline.wide, timeline.narrow, timeline.total - 1
    tokens = config.data.batch_size * config.model.sequence_length
    taught = 0 if teacher is None else 2 * teacher.multiply_adds * tokens

    def stage(
        name: str,
        first: int,
        last: int,
        alive: tuple[Sizes, Sizes],
        physical: Mapping[int, Sizes],
        taught: int = taught,
    ) -> StagePlan:
        rate = learning_rate(config.optimizer, config.budget, name != SCRATCH)
        return StagePlan(
            name,
            last - first,
            (last - first) * tokens,
            alive,
            (float(rate(first)), float(rate(last - 1))),
            sum(
                steps * (train_flops(work(sizes)[0], tokens) + taught)
                for steps, sizes in _pieces(physical, first, last)
            ),
        )

    if timeline.widths:
        for name, first, steps in _steps_at_widths(config, timeline):
            at = dataclasses.replace(wide, neurons=timeline.widths[name])
            more = taught
            if config.elastic.teacher and at != wide and not _is_sandwich(config):
                more += 2 * work(wide)[0] * tokens  # forward, for its logits
            planned = stage(name, first, first + steps, (at, at), {0: at}, more)
            last = float(learning_rate(config.optimizer, config.budget)(last_step))
            rates = planned.learning_rates[0], last
            yield dataclasses.replace(planned, learning_rates=rates)
        return
    alive = {"wide": (wide, wide), "pruning": (wide, narrow)}
    at_end, in_run = (narrow, narrow), {0: wide, **timeline.compactions}
    for name, first, last in timeline.stages:
        yield stage(name, first, last, alive.get(name, at_end), in_run)
    if config.distillation.compare_without:
        yield stage(
            PRUNED_WITHOUT_TEACHER, 0, timeline.total, (wide, narrow), in_run, taught=0
        )
    if config.run.compare_from_scratch:
        yield stage(SCRATCH, 0, timeline.total, at_end, {0: narrow})


def _is_sandwich(config: RunConfig) -> bool:
    return config.elastic.sample == SANDWICH


def _steps_at_widths(
    config: RunConfig, timeline: Timeline
) -> Iterator[tuple[str, int, int]]:
    """Name, first step and steps at each width: as many as are to be expected."""
    widths = timeline.widths
    names = sorted((n for n in widths if n != FULL), key=lambda name: widths[name])
    share = shares(config.elastic.sample, names)
    several = timeline.total - timeline.begin
    for name in widths:
        alone = timeline.begin if name == FULL else 0
        first = timeline.begin if name != FULL else 0
        yield name, first, alone + round(share[name] * several)


def _pieces(
    sizes: Mapping[int, Sizes], first: int, last: int
) -> Iterator[tuple[int, Sizes]]:
    """Pairs (steps, `Sizes`) of a stage; `sizes`: by the step from which they hold."""
    steps = sorted(sizes)
    for step, until in zip(steps, [*steps[1:], last], strict=True):
        length = min(until, last) - max(step, first)
        if length > 0:
            yield length, sizes[step]
