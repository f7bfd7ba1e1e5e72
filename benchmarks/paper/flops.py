"""What training costs: floating point operations, counted from a plan's shapes."""

from benchmarks.paper.methods import METHODS
from benchmarks.paper.scale import VOCABULARY_SIZE
from keras_idea.functional.counts import (
    ffn_parameters,
    token_multiply_adds,
    train_flops,
)
from keras_idea.functional.milestones import compaction_widths
from keras_idea.schedules import CubicWidth


def multiply_adds(scale, width) -> int:
    """Multiply-adds of a token in a forward pass, FFNs of so many neurons."""
    d, layers = scale.model_dim, scale.num_layers
    weights = layers * (4 * d * d + ffn_parameters(d, width)) + VOCABULARY_SIZE * d
    return token_multiply_adds(weights, layers * d, scale.sequence_length)


def forward_flops(scale, width) -> int:
    """Operations of one forward pass over one step's tokens."""
    return 2 * multiply_adds(scale, width) * scale.tokens_a_step


def step_flops(scale, width, teacher_width=None) -> int:
    """Operations of one train step, and of the teacher's forward pass if there is one.

    Args:
        scale: `Scale`.
        width: int, neurons of each FFN, physically.
        teacher_width: int or None, neurons of a teacher's FFNs.
    """
    teacher = 0 if teacher_width is None else forward_flops(scale, teacher_width)
    return train_flops(multiply_adds(scale, width), scale.tokens_a_step) + teacher


def calibration_flops(stage, scale) -> int:
    """Operations of what the stage's method measures before it; 0: nothing."""
    if stage.pruning is None or not METHODS[stage.pruning.method].calibrates:
        return 0
    batches = -(-scale.calibration_samples // scale.batch_size)
    return batches * forward_flops(scale, stage.width)


def physical_widths(stage, compact=None) -> list[int]:
    """How wide the FFNs are, physically, at each step of a stage.

    Args:
        stage: `Stage`.
        compact: None (as the stage says), "off", "end", "progressive", or "cubic":
            as narrow as the mask at every step, the bound that shrinking at
            milestones approaches.
    """
    pruning = stage.pruning
    if pruning is None:
        return [stage.width] * stage.steps
    compact = pruning.compact if compact is None else compact
    method = METHODS[pruning.method]
    if compact in ("off", "end") or not method.gradual:
        wide = pruning.begin if method.one_shot else pruning.end
        wide = stage.steps if compact == "off" else min(wide, stage.steps)
        return [stage.width] * wide + [pruning.target] * (stage.steps - wide)
    width = CubicWidth(
        stage.width, pruning.target, pruning.begin, pruning.steps, pruning.update_every
    )
    if compact == "cubic":
        return [width(step) for step in range(stage.steps)]
    compactions = compaction_widths(compact, [width], pruning.end)
    narrowed = {0: stage.width, **{step: only for step, (only,) in compactions.items()}}
    return [
        narrowed[max(s for s in narrowed if s <= step)] for step in range(stage.steps)
    ]


def stage_flops(stage, scale, compact=None) -> int:
    """Operations that a stage should cost, from its widths alone.

    Calibration and teacher are included; `compact` is as of `physical_widths`.
    """
    teacher_width = stage.teacher and stage.teacher.width
    widths = physical_widths(stage, compact)
    steps = sum(
        widths.count(width) * step_flops(scale, width, teacher_width)
        for width in set(widths)
    )
    return steps + calibration_flops(stage, scale)
