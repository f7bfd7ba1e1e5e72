"""A plan, printed: what each stage does, and what it takes of a device."""

import functools
from typing import TYPE_CHECKING

from keras_idea.groups.kinds import KINDS
from keras_idea.lm.runs.models.footprint import Footprint
from keras_idea.lm.runs.plan.planning import RunPlan
from keras_idea.validation import require

# FFN width before over after; tokens per parameter of a long run; its wide share.
_ENLARGED, _LONG, _WIDE = 2.0, 90.0, 0.3


def advice(planned: RunPlan) -> list[str]:
    """Lines of what a plan could do better by our measurements; none if nothing."""
    lines_of = _of_a_checkpoint if planned.of_checkpoint else _from_nothing
    lines = lines_of(planned)
    if lines:
        lines.append("The evidence: docs/settings.md")
    return lines


def _of_a_checkpoint(planned: RunPlan) -> list[str]:
    lines = []
    if planned.teacher is None:
        lines.append(
            "Advice: set `distillation.teacher` to the checkpoint. It lowered the loss "
            "by 0.009 to 0.013 bits per byte in our measurements."
        )
    if planned.enlargement > _ENLARGED:
        lines.append(
            "Advice: keep about two thirds of the neurons. This run keeps "
            f"{1 / planned.enlargement:.0%}."
        )
    return lines


def _from_nothing(planned: RunPlan) -> list[str]:
    lines, stages = [], planned.own_stages
    if planned.enlargement > _ENLARGED:
        lines.append(
            f"Advice: enlarge at most {_ENLARGED:g}×, unless you want the wide model "
            f"too. This run enlarges {planned.enlargement:.3g}×."
        )
    wide = sum(stage.steps for stage in stages if stage.name == "wide")
    share = wide / sum(stage.steps for stage in stages)
    if planned.tokens_per_parameter >= _LONG and share > _WIDE:
        lines.append(
            f"Advice: from {_LONG:g} tokens per parameter on, keep the wide stage to "
            f"10 to {_WIDE:.0%} of the steps. This run has {share:.0%}."
        )
    return lines


if TYPE_CHECKING:
    from rich.table import Table

_BYTES = [
    "weights",
    "gradients",
    "optimizer",
    "pruning",
    "activations",
    "total",
]


def print_plan(
    planned: RunPlan, utilisation: float = 0.4, price: float | None = None
) -> None:
    """Prints a `RunPlan` as tables.

    `utilisation` is the share of the devices' peak rate that is made use of, in (0, 1];
    `price` is that of one device and hour.
    """
    require("rich", "Printing a plan", "cli")
    import rich.console

    console = rich.console.Console()
    # As they are: a path may hold what rich takes for markup, such as "[x]".
    say = functools.partial(
        console.print, highlight=False, markup=False, soft_wrap=True
    )
    say(planned.text)
    console.print(_stages(planned))
    wide, narrow = planned.parameters
    if planned.widths:
        each = ", ".join(f"{name} {n:,}" for name, n in planned.widths.items())
        say(f"Parameters: {each}.")
    else:
        say(f"Parameters: {wide:,} wide, {narrow:,} narrow.")
    console.print(_bytes(planned))
    for line in [
        *_compiled(planned),
        *_fits(planned),
        *_notes(planned),
        *_time(planned, utilisation, price),
        *_last_rate(planned),
        *([] if planned.widths else [_pays(planned), *advice(planned)]),
    ]:
        say(line)


def _last_rate(planned: RunPlan) -> list[str]:
    """Says why the last step has another rate than the run file's end rate."""
    last, end = planned.own_stages[-1].learning_rates[1], planned.end_learning_rate
    if f"{last:.2g}" == f"{end:.2g}":
        return []
    return [
        f"The last step's learning rate is {last:.2g}, above "
        f"end_learning_rate={end:.2g}, which the cosine reaches only after the run."
    ]


def _pays(planned: RunPlan) -> str:
    """Where to read when pruning pays, and what a reader looks up there."""
    widths = (
        f"FFNs keep {1 / planned.enlargement:.0%} of their neurons."
        if planned.of_checkpoint
        else f"FFNs enlarged {planned.enlargement:.3g}×."
    )
    return (
        f"{planned.tokens_per_parameter:,.3g} tokens per parameter of the narrow model."
        f" {widths}\n"
        "When pruning pays: docs/costs_and_benefits.md"
    )


def _stages(planned: RunPlan) -> "Table":
    words = [KINDS[kind].short for kind in planned.kinds]
    table = _table(["stage", "steps", "tokens", *words, "learning rate", "train FLOPs"])
    for stage in planned.stages:
        table.add_row(
            stage.name,
            f"{stage.steps:,}",
            f"{stage.tokens:,}",
            *(_pair("{:,}", stage.units(kind)) for kind in planned.kinds),
            _pair("{:.2g}", stage.learning_rates),
            f"{stage.flops:.3g}",
        )
    return table


def _bytes(planned: RunPlan) -> "Table":
    table = _table(["MB per device", *_BYTES])
    before: Footprint | None = None
    for when, of in planned.footprints.items():
        if before is not None:
            held = _held(before, 0, 0)
            table.add_row("narrowing", *map(_megabytes, held))
        held = _held(of, of.gradients, of.activations)
        table.add_row(when, *map(_megabytes, held))
        before = of
    if planned.teacher is not None:
        aside = planned.teacher
        teacher = (aside.weights, 0, 0, 0, aside.activations, aside.total)
        table.add_row("the teacher", *map(_megabytes, teacher))
    return table


def _held(of: Footprint, gradients: int, activations: int) -> tuple[int, ...]:
    together = of.total if gradients else of.narrowing
    state = (of.weights, gradients, of.optimizer, of.pruning)
    return (*state, activations, together)


def _notes(planned: RunPlan) -> list[str]:
    footprints = list(planned.footprints.values())
    wide, narrow = footprints[0], footprints[-1]
    rows, parts = planned.mesh
    sizes = f"{_megabytes(wide.checkpoint)} MB"
    if not planned.widths:
        sizes += f" wide, {_megabytes(narrow.checkpoint)} MB narrow"
    lines = [
        "Activations and totals are estimates, without what a compiler fuses and the "
        f"process itself; the rest is exact. A checkpoint takes {sizes}.",
    ]
    if rows * parts > 1:
        lines.append(f"Devices: {rows} along the data axis, {parts} along the model.")
    return lines


def _compiled(planned: RunPlan) -> list[str]:
    lines = []
    for sizes, step in planned.compiled.items():
        said = ", ".join(f"{n} {kind}" for kind, n in step.collectives.items())
        lines.append(
            f"The compiler, at {sizes}: "
            f"{_megabytes(step.arguments)} MB of arguments per device, "
            f"{_megabytes(step.peak)} MB at most; collectives: {said or 'none'}."
        )
    return lines


def _fits(planned: RunPlan) -> list[str]:
    """Whether the target's devices have room, as far as that is known."""
    if planned.target is None:
        return []
    kind, _, _ = planned.target.name.partition(":")
    room = planned.target.kind.memory
    most = max(of.total for of in planned.footprints.values())
    said = "estimated"
    if planned.compiled:
        most = max(step.peak for step in planned.compiled.values())
        said = "by the compiler"
    if planned.teacher is not None:
        most += planned.teacher.total
    verdict = "enough" if most <= room else "not enough"
    return [
        f"Memory of one {kind}: {_megabytes(round(room))} MB, {verdict} for the "
        f"{_megabytes(most)} MB needed ({said})."
    ]


def _time(planned: RunPlan, utilisation: float, price: float | None) -> list[str]:
    hours = planned.hours(utilisation)
    if hours is None or planned.target is None:
        return []
    devices = planned.mesh[0] * planned.mesh[1]
    kind = planned.target.name.partition(":")[0]
    line = (
        f"On {devices} x {kind} at {utilisation:.0%} of the peak rate (bfloat16): "
        f"{hours:,.2f} {'hour' if round(hours, 2) == 1 else 'hours'}"
    )
    if price is not None:
        line += f", {hours * devices * price:,.2f} at {price:g} per device and hour"
    return [f"{line}."]


def _table(columns: list[str]) -> "Table":
    import rich.box
    import rich.table

    table = rich.table.Table(box=rich.box.SIMPLE)
    table.add_column(columns[0])
    for column in columns[1:]:
        # A word is never cut: in a narrow window columns of several words wrap.
        table.add_column(column, justify="right", no_wrap=" " not in column)
    return table


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.3g}" if size < 1e9 else f"{size / 1e6:,.0f}"


def _pair(form: str, pair: tuple[float, float]) -> str:
    begin, end = map(form.format, pair)
    return begin if begin == end else f"{begin} to {end}"
