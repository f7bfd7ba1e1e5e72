"""The FFNs found in KerasHub's models are those of the table, and no others."""

import keras_hub
import pytest

import keras_idea as ki
from keras_idea.hub.ffn import hub_ffns
from tests.support.encoders import ENCODERS
from tests.support.hub_models import MODELS


@pytest.mark.parametrize("name", [*MODELS, *ENCODERS])
def test_found(name):
    row = {**MODELS, **ENCODERS}[name]
    backbone = getattr(keras_hub.models, row.backbone)(**row.arguments)
    known, found = hub_ffns(backbone), ki.find_ffns(backbone)
    assert len(found) == row.ffns == len({ffn.name for ffn in found})
    assert {frozenset(ffn.layers) for ffn in found} == {
        frozenset(ffn.layers) for ffn in known
    }
    by_first = {id(ffn.layers[0]): ffn for ffn in known}
    for ffn in found:
        one = by_first[id(ffn.layers[0])]
        assert ffn.hidden_dim == ffn.width == ffn.full_dim == one.hidden_dim
        # Up, gate and down are in their places, and the biases after them.
        cuts = [
            [(id(c.variable), c.axis, c.group, c.packing) for c in f.cuts()]
            for f in (ffn, one.group)
        ]
        assert cuts[0] == cuts[1]
    explained = ki.explain(backbone)
    assert explained.taken == {ffn.name: ffn.hidden_dim for ffn in found}
    told = [line.split() for line in str(explained).splitlines()]
    for ffn in found:
        assert [ffn.name, str(ffn.hidden_dim), "neurons"] in told
