"""Making a model narrower: its weights, its optimizer's state, its config."""

from keras_idea.finding.explain import explain
from keras_idea.finding.find import FFN, find_ffns, find_groups
from keras_idea.surgery.as_functional import as_functional
from keras_idea.surgery.compact import compact

__all__ = [
    "FFN",
    "as_functional",
    "compact",
    "explain",
    "find_ffns",
    "find_groups",
]
