"""Surgery on a model in which a pruner is at work: raises before anything is cut."""

import pytest

import keras_idea as ki
from keras_idea.surgery import shrink_in_place
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, start_pruning


@pytest.mark.parametrize("ffn", [ki.PrunableGatedFFN, dense_gated])
def test_a_model_at_work_is_left_as_it_was(ffn, data):
    model = residual_model((16, 12), ffn=ffn)
    model.compile("adam", "mse")
    prune = start_pruning(model, 6, 0, 20)
    model.train_on_batch(*data)
    said = r"is being pruned: .*callback.on_train_end\(\)`, before shrink_in_place"
    with pytest.raises(ValueError, match=said):
        shrink_in_place(model)
    model.train_on_batch(*data)  # nothing was cut
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 12]
    prune.on_train_end()
    width = ki.find_ffns(model)[0].width
    assert width < 16
    shrink_in_place(model)  # after the end that is named
    assert ki.find_ffns(model)[0].hidden_dim == width
    model.train_on_batch(*data)
