"""What a run leaves when its models are trained: picture, table and text."""

import dataclasses
import math
import pathlib
import platform
from collections.abc import Mapping, Sequence

import keras

from keras_idea.hub.folder import loading_class
from keras_idea.hub.tokenizers import OWN_CUT, OWN_FILE
from keras_idea.lm.report.picture import draw_run
from keras_idea.lm.report.table import ResultRow
from keras_idea.lm.runs.models.learning_rate import learning_rate
from keras_idea.lm.runs.train.measuring import Costs
from keras_idea.lm.runs.train.recorder import Recorder
from keras_idea.lm.runs.train.run import (
    CUT,
    NARROW,
    PRUNED_WITHOUT_TEACHER,
    SCRATCH,
    TEACHER,
    WIDE,
    Run,
)
from keras_idea.validation import plural

_OURS = "keras_idea.hub.load"
#: What the bits of a run on conversations are.
OF_RESPONSES = "Bits and perplexity are those of the held-out responses alone."


def draw(run: Run, teacher: float | None) -> None:
    """Draws the picture of a run into its folder; `teacher`: its bits per byte."""
    timeline = run.timeline
    with run.folder.replacing("run.png") as path:
        draw_run(
            path,
            [recorder.curve() for recorder in run.recorders],
            run.recorders[0].neurons(),
            timeline.stages,
            list(timeline.compactions),
            f"{timeline.wide.pruned_to(timeline.narrow)}, in one fit",
            teacher=teacher,
        )


def rows(run: Run, costs: Mapping[str, ResultRow]) -> list[ResultRow]:
    """The rows of the table; the costs are those that `measure` found.

    One row each: the wide model right before pruning; the pruned one before recovery,
    if it was validated then; and each trained model at the end.
    """
    recorders, timeline = run.recorders, run.timeline

    def row(name: str, recorder: Recorder, step: int, cost: ResultRow) -> ResultRow:
        return judged(run, cost, name, recorder.curve().validation[step])

    found = [row(WIDE, recorders[0], timeline.begin, costs[WIDE])]
    if timeline.end < timeline.total:
        bits = recorders[0].curve().validation.get(timeline.end)
        if bits is not None:  # a validation fell on that step
            parameters = costs[NARROW].parameters
            found.append(judged(run, ResultRow(CUT, parameters), CUT, bits))
    at_end = [row(r.name, r, timeline.total, costs[r.name]) for r in recorders]
    return found + at_end


def judged(run: Run, cost: ResultRow, name: str, bits: float | None) -> ResultRow:
    """A row with the bits per byte of a validation, and its perplexity per token."""
    perplexity = None if bits is None else run.loss_units.perplexity(bits)
    return dataclasses.replace(
        cost, name=name, bits_per_byte=bits, perplexity_per_token=perplexity
    )


def facts(run: Run, costs: Costs) -> dict[str, str]:
    """What is worth knowing of a run besides its table."""
    left_out = {"speeds": costs.left_out} if costs.left_out else {}
    return {
        **left_out,
        "text": run.models.corpus.description,
        "backend": keras.backend.backend(),
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def extension(run: Run) -> str:
    """A line about the steps after the planned ones."""
    budget = run.config.budget
    rate = learning_rate(run.config.optimizer, budget)(budget.planned_steps)
    return (
        f"Extended by {plural(budget.extend_steps, 'step')}, from "
        f"{budget.planned_steps:,} to {budget.total_steps:,}: in these the learning "
        f"rate stays {float(rate):.3g}, as at the planned end."
    )


def where_it_lies(run: Run, narrow: keras.Model) -> str:
    """A line that says where the narrow model is saved, and what loads it."""
    path = str(pathlib.Path(run.folder.shown) / run.models.saved_as)
    load = "`import keras_idea` and keras.models.load_model"
    if run.config.model.uses_keras_hub:
        load = _loader(run, narrow)
    called = "full" if run.timeline.widths else "narrow"
    return f"The {called} model is saved: {path}. Load it with {load}({path!r})."


def _loader(run: Run, narrow: keras.Model) -> str:
    """The function that loads a run's preset with the tokenizer that it trained on."""
    if (run.folder.path / "preset" / "assets" / "tokenizer" / OWN_FILE).is_file():
        return _OURS
    return f"keras_hub.models.{loading_class(narrow)}.from_preset"


def how_to_load(run: Run, narrow: keras.Model, prompt: str) -> str:
    """What to type to use the preset that a run has left."""
    preset, load = pathlib.Path(run.folder.shown) / "preset", _loader(run, narrow)
    needs = "It needs no keras_idea:"
    if load == _OURS:
        needs = f"Load it with keras_idea. {OWN_CUT}"
    return (
        f"The {'full' if run.timeline.widths else 'narrow'} model is a stock KerasHub "
        f"model, in {preset}/. {needs}\n\n"
        f"    import {load.split('.')[0]}\n"
        f"    lm = {load}({str(preset)!r})\n"
        f"    print(lm.generate({prompt!r}, max_length={run.length}))\n"
    )


def verdict(rows: Sequence[ResultRow]) -> str:
    """How the pruned model compares with each other model of a run; "" with none."""
    bits = {row.name: row.bits_per_byte for row in rows}
    ours = bits.get(NARROW)
    compared = [
        sentence.format(ours=f"{ours:.3f}", theirs=f"{theirs:.3f}", gap=_gap(gap))
        for name, sentence in _VERDICTS.items()
        if ours is not None and (theirs := bits.get(name)) is not None
        for gap in [round(ours, 3) - round(theirs, 3)]
    ]
    return "\n".join([*compared, *([_ONE_RUN] if compared else [])])


# By the model that the pruned one is compared with.
_VERDICTS = {
    TEACHER: "Pruned {ours}, teacher {theirs} bits per byte: the pruned model is "
    "{gap}.",
    PRUNED_WITHOUT_TEACHER: "With the teacher {ours}, without it {theirs} bits per "
    "byte: the pruned model with the teacher is {gap}.",
    SCRATCH: "Pruned {ours}, narrow from scratch {theirs} bits per byte at equal "
    "tokens: the pruned model is {gap}. It took more FLOPs (`keras-idea plan`).",
}
_ONE_RUN = (
    "This is one run of each. In measurements with small models, another seed changed "
    "such a difference by 0.01 to 0.03."
)


def _gap(gap: float) -> str:
    if not math.isfinite(gap):
        return "not comparable"
    if abs(gap) < 5e-4:
        return "equal to three digits"
    return f"{'better' if gap < 0 else 'worse'} by {abs(gap):.3f}"
