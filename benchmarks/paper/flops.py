"""What training costs: floating point operations, counted from shapes."""

from keras_idea.callbacks.narrowing import compaction_widths
from keras_idea.functional.counts import ffn_flops
from keras_idea.schedules import CubicWidth


def forward_flops(scale, width):
    """Operations of one forward pass over one step's tokens.

    All products of matrices: projections and products of the attention (over the
    whole square of positions, as it is computed), FFNs and logits. A multiply-add
    counts two.

    Args:
        scale: `Scale`.
        width: int, neurons of each FFN.

    Returns:
        int.
    """
    d, length = scale.model_dim, scale.sequence_length
    attention = 8 * d * d + 4 * length * d
    block = attention + ffn_flops(d, width)
    return scale.tokens_a_step * (scale.num_layers * block + 2 * d * 256)


def step_flops(scale, width, teacher_width=None):
    """Operations of one train step; the backward pass costs two forward ones.

    Args:
        scale: `Scale`.
        width: int, neurons of each FFN, physically.
        teacher_width: int or None, neurons of a teacher's FFNs: one forward pass.

    Returns:
        int.
    """
    teacher = 0 if teacher_width is None else forward_flops(scale, teacher_width)
    return 3 * forward_flops(scale, width) + teacher


def calibration_flops(stage, scale):
    """Operations of the activation method's measurement before a stage.

    Args:
        stage: `Stage`.
        scale: `Scale`.

    Returns:
        int, 0 for other methods.
    """
    if stage.pruning is None or stage.pruning.method != "activation":
        return 0
    batches = -(-scale.calibration_samples // scale.batch_size)
    return batches * forward_flops(scale, stage.width)


def physical_widths(stage, compact=None):
    """How wide the FFNs are, physically, at each step of a stage.

    Args:
        stage: `Stage`.
        compact: None (as the stage says), "off", "end", "progressive", or "cubic":
            as narrow as the mask at every step, the bound that shrinking at
            milestones approaches.

    Returns:
        List of int, neurons, one a step.
    """
    pruning = stage.pruning
    if pruning is None:
        return [stage.width] * stage.steps
    compact = pruning.compact if compact is None else compact
    if compact == "off":
        return [stage.width] * stage.steps
    if pruning.method in ("random", "activation"):
        return [stage.width] * pruning.begin + [pruning.target] * (
            stage.steps - pruning.begin
        )
    if compact == "end" or pruning.method == "learned_mask":
        wide = min(pruning.end, stage.steps)
        return [stage.width] * wide + [pruning.target] * (stage.steps - wide)
    width = CubicWidth(
        stage.width, pruning.target, pruning.begin, pruning.steps, pruning.update_every
    )
    alive = [width(step) for step in range(stage.steps)]
    if compact == "cubic":
        return alive
    narrowed = {0: stage.width, **compaction_widths(compact, width, pruning.end)}
    return [
        narrowed[max(s for s in narrowed if s <= step)] for step in range(stage.steps)
    ]


def stage_flops(stage, scale, compact=None):
    """Operations that a stage should cost, from its widths alone.

    Args:
        stage: `Stage`.
        scale: `Scale`.
        compact: as of `physical_widths`.

    Returns:
        int, calibration and teacher included.
    """
    teacher_width = stage.teacher and stage.teacher.width
    widths = physical_widths(stage, compact)
    steps = sum(
        widths.count(width) * step_flops(scale, width, teacher_width)
        for width in set(widths)
    )
    return steps + calibration_flops(stage, scale)
