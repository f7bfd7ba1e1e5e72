"""The FFNs of KerasHub's models are found without a table, and nothing else is."""

import keras_hub
import pytest

from keras_idea.groups.dense import find_dense_groups
from keras_idea.hub.ffn import hub_ffns
from tests.support.encoders import ENCODERS
from tests.support.hub_models import MODELS

# It multiplies by the kernel of its down layer itself.
BY_TABLE = {"gemma4"}


@pytest.mark.daily("torch", why="shapes alone; the layers of all backends are the same")
@pytest.mark.parametrize("name", [*MODELS, *ENCODERS])
def test_found(name):
    row = {**MODELS, **ENCODERS}[name]
    backbone = getattr(keras_hub.models, row.backbone)(**row.arguments)
    known = [ffn for ffn in hub_ffns(backbone) if not ffn.layout.experts]
    groups = find_dense_groups(backbone).groups
    found = {frozenset(group.layers) for group in groups}
    assert found == {frozenset(f.layers) for f in known if name not in BY_TABLE}
