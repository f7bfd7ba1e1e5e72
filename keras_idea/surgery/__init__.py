"""Finding, narrowing and compacting the FFNs of a model."""

from keras_idea.surgery.compact import compact
from keras_idea.surgery.explain import explain
from keras_idea.surgery.find import FFN, find_ffns, find_groups
from keras_idea.surgery.narrow_in_place import shrink_in_place

__all__ = [
    "FFN",
    "compact",
    "explain",
    "find_ffns",
    "find_groups",
    "shrink_in_place",
]
