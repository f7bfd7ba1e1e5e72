"""`keras-idea plan`: what a run does and costs, from shapes alone."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import keras

from keras_idea._finding.budget import multiply_adds
from keras_idea._keras.optimizer_variables import build_without_values
from keras_idea._lm.export.load import find_model
from keras_idea._lm.report.table import markdown_table
from keras_idea._lm.runs.compiling import learning_rate, make_optimizer
from keras_idea._lm.runs.config import RunConfig
from keras_idea._lm.runs.folder import check_places
from keras_idea._lm.runs.models import source_of
from keras_idea._lm.runs.results import SCRATCH
from keras_idea._lm.runs.sizes import (
    Sizes,
    Timeline,
    make_timeline,
    narrow_sizes,
)
from keras_idea.hub.loading import PEAK, outline


@dataclasses.dataclass(frozen=True)
class StagePlan:
    """One stage of a run."""

    name: str
    steps: int  # of the optimizer
    tokens: int
    sizes: tuple[Sizes, Sizes]  # at its begin and its end
    learning_rates: tuple[float, float]  # of its first and its last step
    flops: float  # of all products of matrices, FFNs as wide as they are stored


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """A run, planned."""

    stages: list[StagePlan]  # the last one may be the scratch baseline
    parameters: tuple[int, int]  # of the wide and the narrow model
    weights: tuple[int, int]  # their bytes
    optimizer: tuple[int, int]  # bytes of its state
    loading: int  # the most bytes that loading the checkpoint takes; 0: there is none
    tokens_per_parameter: float  # of the narrow model

    def __str__(self) -> str:
        """The plan as tables and lines."""
        rows = [["stage", "steps", "tokens", "sizes", "learning rate", "train FLOPs"]]
        for stage in self.stages:
            begin, end = stage.sizes
            rows.append(
                [
                    stage.name,
                    f"{stage.steps:,}",
                    f"{stage.tokens:,}",
                    begin.pruned_to(end) or str(begin),
                    "{:.2g} to {:.2g}".format(*stage.learning_rates),
                    f"{stage.flops:.3g}",
                ]
            )
        costs = [["model", "parameters", "MB of weights", "MB of optimizer"]]
        pairs = zip(self.parameters, self.weights, self.optimizer, strict=True)
        for name, (count, *sizes) in zip(("wide", "narrow"), pairs, strict=True):
            costs.append([name, f"{count:,}", *(f"{s / 1e6:,.3f}" for s in sizes)])
        loading = f"Loading the checkpoint takes up to {self.loading / 1e6:,.3f} MB.\n"
        return (
            f"{markdown_table(rows)}\n{markdown_table(costs)}\n"
            f"{loading if self.loading else ''}"
            f"{self.tokens_per_parameter:,.3g} tokens per parameter of the narrow "
            "model; docs/costs_and_benefits.md says when pruning pays."
        )


def plan(config: RunConfig) -> RunPlan:
    """Plans a run. No text is read, no model is made, no folder is written.

    A tokenizer that the run trains counts as large as the run asks for.

    Example:
    >>> from keras_idea._lm.runs.config import load_config
    >>> for stage in plan(load_config("run.toml")).stages:
    ...     print(stage.name, stage.steps, stage.sizes[1].neurons)
    wide 4 32
    pruning 3 8
    recovery 5 8
    narrow from scratch 12 8
    """
    check_places(config)
    source, parts = source_of(config), config.distribution.model
    wide = source.at_start
    narrow = narrow_sizes(config.model, wide, source.outline, parts)
    timeline = make_timeline(config, wide, narrow)
    models = [source.outline(sizes) for sizes in (wide, narrow)]
    states = []
    for model in models:
        optimizer = make_optimizer(config)
        build_without_values(optimizer, model.trainable_variables)
        states.append(_bytes(optimizer.variables))
    first, last = models
    tokens = config.data.batch_size * config.model.sequence_length
    count = last.count_params()
    return RunPlan(
        list(_stages(config, source.outline, timeline)),
        (first.count_params(), count),
        (_bytes(first.variables), _bytes(last.variables)),
        (states[0], states[1]),
        round(PEAK * 4 * first.count_params()) if config.model.preset else 0,
        tokens * timeline.total / count,
    )


def _bytes(variables: list[keras.Variable]) -> int:
    sizes = [keras.backend.standardize_dtype(v.dtype) for v in variables]
    bits = [int("".join(filter(str.isdigit, name)) or 8) for name in sizes]
    return sum(
        math.prod(v.shape) * each // 8 for v, each in zip(variables, bits, strict=True)
    )


def _stages(
    config: RunConfig, outlined: Callable[[Sizes], keras.Model], at: Timeline
) -> Iterator[StagePlan]:
    length = config.model.sequence_length
    tokens = config.data.batch_size * length

    @functools.cache
    def work(sizes: Sizes) -> int:
        return multiply_adds(outlined(sizes), length)

    taught = 0
    if config.distillation.teacher is not None:
        found = find_model(config.distillation.teacher)
        if not found.endswith(".keras"):
            teacher = outline(found, config.run.dtype)
            taught = 2 * multiply_adds(teacher, length) * tokens
    rate = learning_rate(config)

    def stage(
        name: str, first: int, last: int, sizes: tuple[Sizes, Sizes], stored: dict
    ) -> StagePlan:
        flops = sum(
            # A multiply-add is two operations, the backward pass two forward ones.
            steps * (6 * work(each) * tokens + taught)
            for steps, each in _pieces(stored, first, last)
        )
        rates = float(rate(first)), float(rate(last - 1))
        count = last - first
        return StagePlan(name, count, count * tokens, sizes, rates, flops)

    ends = {"wide": (at.wide, at.wide), "pruning": (at.wide, at.narrow)}
    after, stored = (at.narrow, at.narrow), {0: at.wide, **at.narrowings}
    for name, first, last in at.stages:
        yield stage(name, first, last, ends.get(name, after), stored)
    if config.run.compare_from_scratch:
        yield stage(SCRATCH, 0, at.total, after, {0: at.narrow})


def _pieces(
    stored: dict[int, Sizes], first: int, last: int
) -> Iterator[tuple[int, Sizes]]:
    """Pairs of steps and `Sizes` of a stage; `stored` by the step from which it is."""
    steps = sorted(stored)
    for step, until in zip(steps, [*steps[1:], last], strict=True):
        count = min(until, last) - max(step, first)
        if count > 0:
            yield count, stored[step]
