"""Finding, converting, narrowing and compacting the FFNs of a model."""

from keras_idea.surgery.compact import compact
from keras_idea.surgery.find import FFN, find_ffns
from keras_idea.surgery.make_prunable import make_prunable, strip
from keras_idea.surgery.shrink import shrink_in_place

__all__ = [
    "FFN",
    "compact",
    "find_ffns",
    "make_prunable",
    "shrink_in_place",
    "strip",
]
