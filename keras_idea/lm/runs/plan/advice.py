"""Advice that follows from a run itself: see docs/recommended_settings.md."""

from keras_idea.lm.runs.plan.planning import RunPlan

# FFN width before over after; tokens per parameter of a long run; its wide share.
_ENLARGED, _LONG, _WIDE = 2.0, 90.0, 0.3


def advice(planned: RunPlan) -> list[str]:
    """Lines of what a plan could do better by our measurements; none if nothing."""
    lines_of = _of_a_checkpoint if planned.of_checkpoint else _from_nothing
    lines = lines_of(planned)
    if lines:
        lines.append("The evidence: docs/recommended_settings.md")
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
