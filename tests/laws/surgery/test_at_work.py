"""Surgery on a model in which a pruner is at work: refused before anything is cut."""

import pytest

import keras_idea as ki
from keras_idea.surgery import shrink_in_place
from tests.support.helpers import residual_model, start_pruning


@pytest.mark.parametrize("surgery", [shrink_in_place, ki.strip])
def test_a_model_at_work_is_left_as_it_was(surgery, data):
    model = residual_model((16, 12))
    model.compile("adam", "mse")
    prune = start_pruning(model, 6, 0, 20)
    model.train_on_batch(*data)
    said = rf"is being pruned: .*callback.on_train_end\(\)`, before {surgery.__name__}"
    with pytest.raises(ValueError, match=said):
        surgery(model)
    model.train_on_batch(*data)  # nothing was cut
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 12]
    prune.on_train_end()
    width = ki.find_ffns(model)[0].width
    assert width < 16
    if surgery is shrink_in_place:  # after the end that is named
        shrink_in_place(model)
        assert ki.find_ffns(model)[0].hidden_dim == width
        model.train_on_batch(*data)
