"""The newest scores and mask of one FFN, while an optimizer's steps renew them."""

import dataclasses
from typing import TYPE_CHECKING

import keras

from keras_idea.schedules.width import CubicWidth

if TYPE_CHECKING:  # it makes these
    from keras_idea.surgery.pruner import NeuronPruner


@dataclasses.dataclass(frozen=True)
class Live:
    """What a pruner keeps of one FFN while it is at work.

    Attributes:
        pruner: the `NeuronPruner`.
        scores: variable of the optimizer, shaped as the state's scores.
        mask: variable of the optimizer, shaped as the state's mask.
        schedule: `CubicWidth`, or None: it only keeps score.
    """

    pruner: "NeuronPruner"
    scores: keras.Variable
    mask: keras.Variable
    schedule: CubicWidth | None
