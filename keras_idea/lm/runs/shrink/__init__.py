"""`keras-idea shrink`: a checkpoint made smaller in one step, measured and exported."""

from keras_idea.lm.runs.shrink.one_shot import one_shot
from keras_idea.lm.runs.shrink.wanted import Wanted

__all__ = ["Wanted", "one_shot"]
