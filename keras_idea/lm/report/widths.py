"""The curve of a run that trains several widths, taken apart."""

import dataclasses
from collections.abc import Mapping

from keras_idea.elastic.draw import SANDWICH
from keras_idea.elastic.widths import FULL
from keras_idea.finding.targets import target_width
from keras_idea.lm.report.curves import TrainingCurve
from keras_idea.lm.report.run_record import RunRecord


def curves_by_width(
    whole: TrainingCurve, widths: Mapping[str, int], sandwich: bool
) -> list[TrainingCurve]:
    """A curve for each width, of the steps at that width.

    Of a "sandwich" the steps have one loss, the mean of several widths: each width has
    validations alone, and the steps are a curve of their own, the last.

    Args:
        whole: `TrainingCurve`. All steps of the run, each with its width.
        widths: dict. Name -> neurons, "full" among them.
        sandwich: bool. Whether a step computes several widths.
    """
    validated = {FULL: whole.validation, **whole.at_widths}
    curves = [
        dataclasses.replace(
            _steps_at(whole, -1 if sandwich else neurons),
            name=name,
            validation=validated.get(name, {}),
        )
        for name, neurons in widths.items()
    ]
    if not sandwich:
        return curves
    mean = dataclasses.replace(whole, name="mean of widths", validation={})
    return [*curves, dataclasses.replace(mean, at_widths={})]


def curves_of(record: RunRecord) -> list[tuple[str, TrainingCurve]]:
    """What is drawn of a run beside others, by name: a curve, or one for each width."""
    curve = record.curves[0]
    given = record.settings.get("elastic.widths")
    if not isinstance(given, Mapping):
        return [(record.name, curve)]
    sample = record.settings.get("elastic.sample")
    full = record.settings.get("model.hidden_dim")
    if not isinstance(full, int):
        if isinstance(sample, Mapping) and not sample.get(FULL):
            return [(record.name, curve)]  # no step tells how wide the full model is
        full = int(curve.width.max())
    widths = {FULL: full}
    widths |= {name: target_width(given[name], full, round_to=1) for name in given}
    found = curves_by_width(curve, widths, sample == SANDWICH)
    return [(f"{record.name}: {each.name}", each) for each in found]


def _steps_at(whole: TrainingCurve, neurons: int) -> TrainingCurve:
    """The steps of a curve at one width."""
    at = whole.width == neurons
    return dataclasses.replace(
        whole,
        steps=whole.steps[at],
        loss=whole.loss[at],
        learning_rate=whole.learning_rate[at],
        width=whole.width[at],
        at_widths={},
    )
