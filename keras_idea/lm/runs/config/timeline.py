"""The stages of a run described in TOML, by step, and its sizes in each."""

import dataclasses
from collections.abc import Mapping

import keras

from keras_idea import methods
from keras_idea.errors import ConfigError
from keras_idea.functional.milestones import compaction_widths
from keras_idea.groups.kinds import KINDS
from keras_idea.lm.runs.config.run_config import RunConfig
from keras_idea.lm.runs.config.sizes import Sizes


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The steps and sizes of a run, worked out once."""

    begin: int  # the last optimizer step at full width
    end: int  # the optimizer step at which the stage of pruning is over
    total: int  # optimizer steps of the whole run
    wide: Sizes
    narrow: Sizes
    # Of each step after which the model becomes physically narrower, inside its `fit`,
    # the `Sizes` that it has places for from there on; ascending.
    compactions: Mapping[int, Sizes]
    # Of a run with [elastic] the neurons at each width, "full" first: nothing is pruned
    # there, and `narrow` is `wide`.
    widths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def stages(self) -> list[tuple[str, int, int]]:
        """List of (name, first step, last step) of those that have steps."""
        stages = [
            ("wide", 0, self.begin),
            ("pruning", self.begin, self.end),
            ("all widths" if self.widths else "recovery", self.end, self.total),
        ]
        return [stage for stage in stages if stage[1] < stage[2]]


def _check_divides(wide: Sizes, narrow: Sizes, parts: int) -> None:
    """Devices share units of equal numbers, at the start and at the end."""
    start = wide.by_kind()
    for kind, kept in narrow.by_kind().items():
        # Heads that the axis does not divide stay whole until some are cut out.
        if kept % parts or start[kind] % parts:
            near = [n for n in (kept // parts * parts, -(-kept // parts) * parts) if n]
            fit = [str(n) for n in sorted(set(near)) if n < start[kind]]
            keep = ""
            if fit and start[kind] % parts == 0:
                keep = f"Keep {' or '.join(fit)} of them, or set "
            raise ConfigError(
                f"`distribution.mesh` must divide the {KINDS[kind].units} at the start "
                f"and at the end, {start[kind]} and {kept}, along its model axis. "
                f"Received: model={parts}. {keep or 'Set '}`distribution.mesh` to "
                "{ data = ... }."
            )


def make_timeline(
    config: RunConfig, wide: Sizes, narrow: Sizes, here: bool = True
) -> Timeline:
    """The timeline of a run.

    `here` says whether it is run in this process; if not, it is compiled.

    Raises:
        ConfigError: if the mesh does not divide the sizes.

    Example:
    >>> make_timeline(RunConfig(), Sizes(512), Sizes(192)).end
    750
    """
    if config.elastic.given:
        begin, total = config.elastic.begin_step, config.budget.total_steps
        at_widths = config.elastic.neurons(wide.neurons)
        return Timeline(begin, begin, total, wide, narrow, {}, at_widths)
    _check_divides(wide, narrow, config.distribution.size[1])
    pruning = config.pruning
    begin, steps = config.budget.enlarge_steps, config.budget.prune_steps
    compiled = keras.backend.backend() != "torch" or config.run.jit_compile
    method = methods.get(pruning.method)
    before = wide.by_kind()
    schedules = {
        kind: method.width_schedule(
            before[kind], units, begin, steps, pruning.update_every
        )
        for kind, units in wide.smaller_in(narrow).items()
    }
    widths = compaction_widths(
        pruning.compact,
        list(schedules.values()),
        method.end_step(begin, steps),
        config.distribution.size[1],
        eager=here and not compiled,
    )
    return Timeline(
        begin=begin,
        end=begin + steps,
        total=config.budget.total_steps,
        wide=wide,
        narrow=narrow,
        compactions={
            step: dataclasses.replace(wide, **dict(zip(schedules, units, strict=True)))
            for step, units in widths.items()
        },
    )
