"""Making a model narrower: its weights, its optimizer's state, its config."""

from keras_idea._finding.explain import explain
from keras_idea._finding.find import find_ffns, find_groups
from keras_idea._graph.group import FFN
from keras_idea._surgery.as_functional import as_functional
from keras_idea._surgery.compact import compact

__all__ = [
    "FFN",
    "as_functional",
    "compact",
    "explain",
    "find_ffns",
    "find_groups",
]
