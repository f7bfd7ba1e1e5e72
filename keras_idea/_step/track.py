"""What a pruning run knows of one FFN."""

import dataclasses

import keras

from keras_idea._finding.find import FFN
from keras_idea.functional.width import CubicWidth


@dataclasses.dataclass(eq=False)
class Track:
    """One FFN in the course of a pruning run.

    Attributes:
        ffn: `FFN` handle.
        target_dim: int, the neurons that it is to keep.
        schedule: `CubicWidth`, its width over the steps.
        began: int, the active neurons when the run began.
        scores: variable of the optimizer, shaped as the state's scores: the newest, as
            long as a pruner is at work.
        mask: variable of the optimizer, shaped as the state's mask; likewise.
        scheduled: bool, whether the pruner follows `schedule`; else it only keeps
            score.
    """

    ffn: FFN
    target_dim: int
    schedule: CubicWidth
    began: int
    scores: keras.Variable = None
    mask: keras.Variable = None
    scheduled: bool = True

    @property
    def has_work(self) -> bool:
        """bool, whether it had more active neurons than it is to keep at first."""
        return self.began > self.target_dim

    @property
    def too_wide(self) -> bool:
        """bool, whether more neurons are active than it is to keep."""
        return self.ffn.width > self.target_dim


def only_scored(ffn: FFN) -> Track:
    """The track of an FFN that is scored, and keeps all its neurons."""
    width = ffn.hidden_dim
    schedule = CubicWidth(width, width, begin_step=0, prune_steps=1)
    return Track(ffn, width, schedule, ffn.width, scheduled=False)
