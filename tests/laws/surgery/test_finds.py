"""How often what can be pruned is looked for in a model."""

import collections

import pytest

import keras_idea as ki
from keras_idea.finding import find
from tests.support.helpers import stock_model


@pytest.fixture
def finds(monkeypatch):
    """A counter of the searches for each kind since it was last cleared."""
    count = collections.Counter()

    def counted(kind, finder):
        def search(model):
            count[kind] += 1
            return finder(model)

        return search

    counting = {kind: counted(kind, each) for kind, each in find.FINDERS.items()}
    monkeypatch.setattr(find, "FINDERS", counting)
    return count


def test_a_model_is_searched_a_few_times(finds, data):
    """A run searches once, however many steps and layers it has, and whatever ends it.

    A copy is another model: `compact` makes one, `shrink` two. Neither hands what it
    found from one to the other yet, so they search more often than they need.
    """
    for hidden_dims in ((16,), (16, 12, 12)):
        model = stock_model(hidden_dims)
        model.compile("sgd", "mse", run_eagerly=True)
        prune = ki.IdeaPruneCallback(4, 2, 6, compact="progressive")
        model.fit(*data, batch_size=8, epochs=2, callbacks=[prune], verbose=0)
        assert finds == {"neurons": 1, "kv_groups": 1, "channels": 1}
        finds.clear()
        ki.shrink(model, {"neurons": 2}, data)
        assert finds["neurons"] == 7
        finds.clear()
        ki.compact(model)
        assert finds["neurons"] == 4
        finds.clear()
