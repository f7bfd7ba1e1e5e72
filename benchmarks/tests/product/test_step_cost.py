"""The benchmarks of our steps: a pruner that does nothing must not look cheap."""

import dataclasses
import pathlib
import sys

import keras
import pytest

from tests.support import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    """The scripts as they import each other, from their own folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    import contestants
    import proof
    import run_price
    import step_cost

    yield contestants, proof, run_price, step_cost
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin and pathlib.Path(origin).parent == BENCHMARKS:
            del sys.modules[name]


class Turns:
    """Stands in for the progress bar, and does something to a model in mid-run."""

    def __init__(self, act=lambda: None, at=None):
        self.act, self.at, self.done = act, at, 0

    def add_task(self, *args, **kwargs):
        """A task has no number here."""

    def update(self, *args, **kwargs):
        """Nothing is shown."""

    def advance(self, task):
        """Counts a model's turn."""
        self.done += 1
        if self.done == self.at:
            self.act()


def shape_of(contestants):
    return dataclasses.replace(contestants.SHAPES["tiny"], steps=4)


def take_off(model):
    """The optimizer's step is its class's again: the pruner's hook is gone."""
    del model.optimizer.apply


NOT_COMPILED = pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="a compiled step does not see what is changed in Python behind its back",
)


def test_steps_that_prune_are_timed(benchmarks):
    contestants, _, _, step_cost = benchmarks
    turns = Turns()
    timed = step_cost.measure_steps(
        "decoder", shape_of(contestants), "auto", "tiny", turns
    )
    assert turns.done == 9 * 3  # two timed turns, and the one that compiles
    assert all(len(seconds) == 2 for seconds in timed["seconds per step"].values())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tracking", "'tracking', which does not prune"),
        ("pruning", "'pruning', which does not prune"),
        # By the callback itself.
        pytest.param("pruning + callback", "pruning saw 8 of them", marks=NOT_COMPILED),
    ],
)
def test_a_pruner_that_dies_between_two_turns_is_found_out(
    benchmarks, monkeypatch, name, said
):
    contestants, _, _, step_cost = benchmarks
    made, make = {}, contestants.make_contestants

    def remembered(*arguments):
        made.update(make(*arguments))
        return dict(made)

    monkeypatch.setattr(step_cost, "make_contestants", remembered)
    turns = Turns(lambda: take_off(made[name][0]), at=2 * 4)
    names = ("wide", name, "built narrow", "compacted in place")
    how = ("decoder", shape_of(contestants), "auto", "tiny", turns, names)
    with pytest.raises(RuntimeError, match=said):
        step_cost.measure_steps(*how)


@NOT_COMPILED
def test_a_pruner_that_counts_and_does_not_prune_is_found_out(benchmarks, monkeypatch):
    """Masks as they should be, and weights of pruned neurons that are no zeros."""
    contestants, proof, _, _ = benchmarks
    from keras_idea.step import scores_and_masks

    shape = shape_of(contestants)
    stage = contestants.pruning_stage(shape)
    schedule = contestants.ki.CubicWidth(shape.hidden_dim, shape.target_dim, **stage)
    model = contestants.make_model("decoder", shape, shape.hidden_dim, prunable=True)
    contestants.start_pruner(model, schedule)
    contestants.fit(model, shape, contestants.make_data(shape, 8))
    proof.check_masked("pruning", model, schedule(8), steps=8)
    monkeypatch.setattr(scores_and_masks, "zero_rows", lambda cuts, mask: None)
    contestants.fit(model, shape, contestants.make_data(shape, 16))
    with pytest.raises(proof.NotPrunedError, match="weights in pruned rows"):
        proof.check_masked("pruning", model, schedule(24), steps=24)


def test_a_narrow_model_that_is_not_narrow_is_found_out(benchmarks):
    contestants, proof, _, _ = benchmarks
    shape = shape_of(contestants)
    wide = contestants.make_model("decoder", shape, shape.hidden_dim, prunable=True)
    narrow = contestants.make_model("decoder", shape, shape.target_dim, prunable=False)
    with pytest.raises(proof.NotPrunedError, match="neurons of"):
        proof.check_narrow("compacted in place", wide, shape.target_dim)
    deep = dataclasses.replace(shape, num_layers=2)
    other = contestants.make_model("decoder", deep, shape.target_dim, prunable=False)
    with pytest.raises(proof.NotPrunedError, match="shapes of the weights"):
        proof.check_narrow("compact(model)", other, shape.target_dim, like=narrow)
    proof.check_narrow("built narrow", narrow, shape.target_dim, like=narrow)


@pytest.mark.parametrize("compact", ["off", "end", "progressive"])
def test_a_whole_run_is_timed_only_if_it_was_pruned(benchmarks, monkeypatch, compact):
    contestants, proof, run_price, _ = benchmarks
    shape, steps = shape_of(contestants), [3, 6, 3]
    timed = run_price.run({"compact": compact}, shape, steps)
    assert len(timed["seconds"]) == 12 and timed["whole"] > 0

    class Idle(keras.callbacks.Callback):
        def __init__(self, *arguments, **options):
            super().__init__()

    monkeypatch.setattr(run_price.ki, "IdeaPruneCallback", Idle)
    with pytest.raises(proof.NotPrunedError, match=compact):
        run_price.run({"compact": compact}, shape, steps)
