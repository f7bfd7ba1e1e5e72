"""The benchmarks of our steps: a pruner that does nothing must not look cheap."""

import dataclasses

import keras
import pytest

from benchmarks import contestants, proof, step_cost
from keras_idea._step import algorithm

TINY = dataclasses.replace(contestants.SHAPES["tiny"], steps=4)


class Turns:
    """Counts the models' turns, and does something to a model in mid-run."""

    def __init__(self, act=lambda: None, at=None):
        self.act, self.at, self.done = act, at, 0

    def __call__(self):
        self.done += 1
        if self.done == self.at:
            self.act()


def take_off(model):
    """The optimizer's step is its class's again: the pruner's hook is gone."""
    del model.optimizer.apply


NOT_COMPILED = pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="a compiled step does not see what is changed in Python behind its back",
)


@pytest.mark.daily()
def test_steps_that_prune_are_timed():
    turns = Turns()
    timed = step_cost.measure_steps("decoder", TINY, "auto", on_turn=turns)
    assert turns.done == 9 * 3  # two timed turns, and the one that compiles
    assert all(len(seconds) == 2 for seconds in timed["seconds per step"].values())


@pytest.mark.daily()
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tracking", "'tracking', which does not prune"),
        ("pruning", "'pruning', which does not prune"),
        # By the callback itself.
        pytest.param("pruning + callback", "ended the pruning", marks=NOT_COMPILED),
    ],
)
def test_a_pruner_that_dies_between_two_turns_is_found_out(monkeypatch, name, said):
    made, make = {}, contestants.make_contestants

    def remembered(*arguments):
        made.update(make(*arguments))
        return dict(made)

    monkeypatch.setattr(step_cost, "make_contestants", remembered)
    turns = Turns(lambda: take_off(made[name][0]), at=2 * 4)
    names = ("wide", name, "built narrow", "compacted in place")
    with pytest.raises(RuntimeError, match=said):
        step_cost.measure_steps("decoder", TINY, "auto", names, turns)


@NOT_COMPILED
def test_a_pruner_that_counts_and_does_not_prune_is_found_out(monkeypatch):
    """Masks as they should be, and weights of pruned neurons that are no zeros."""
    shape = TINY
    stage = contestants.pruning_stage(shape)
    schedule = contestants.ki.CubicWidth(shape.hidden_dim, shape.target_dim, **stage)
    model = contestants.make_model("decoder", shape, shape.hidden_dim, prunable=True)
    contestants.start_pruner(model, schedule)
    contestants.fit(model, shape, contestants.make_data(shape, 8))
    proof.check_masked("pruning", model, schedule(8), steps=8)
    monkeypatch.setattr(algorithm, "zero_rows", lambda cuts, mask: None)
    contestants.fit(model, shape, contestants.make_data(shape, 16))
    with pytest.raises(proof.NotPrunedError, match="weights in pruned rows"):
        proof.check_masked("pruning", model, schedule(24), steps=24)


def test_a_narrow_model_that_is_not_narrow_is_found_out():
    shape = TINY
    wide = contestants.make_model("decoder", shape, shape.hidden_dim, prunable=True)
    narrow = contestants.make_model("decoder", shape, shape.target_dim, prunable=False)
    with pytest.raises(proof.NotPrunedError, match="neurons of"):
        proof.check_narrow("compacted in place", wide, shape.target_dim)
    deep = dataclasses.replace(shape, num_layers=2)
    other = contestants.make_model("decoder", deep, shape.target_dim, prunable=False)
    with pytest.raises(proof.NotPrunedError, match="shapes of the weights"):
        proof.check_narrow("compact(model)", other, shape.target_dim, like=narrow)
    proof.check_narrow("built narrow", narrow, shape.target_dim, like=narrow)
