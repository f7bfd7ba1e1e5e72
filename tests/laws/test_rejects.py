"""Bad input is refused: by the right class, with the argument's name, before a change.

Python decides all this, so `make test` runs it on torch alone.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ArgumentError, CheckpointError, PruningStopped
from keras_idea.methods import Activation, LearnedMask, Random, Sensitivity
from tests.support import case_models as m
from tests.support import users_models as users
from tests.support.case_models import D, L
from tests.support.helpers import to_numpy

pytestmark = pytest.mark.daily("torch")


def prune(target_dim=4, begin_step=1, prune_steps=2, **arguments):
    return ki.IdeaPruneCallback(target_dim, begin_step, prune_steps, **arguments)


def by_targets(begin_step=1, prune_steps=2, **arguments):
    return ki.IdeaPruneCallback(None, begin_step, prune_steps, **arguments)


HALF = {"half": 0.5}
NAN = float("nan")
#: (word, call): an ArgumentError that has the word; no model is needed.
ARGUMENTS = [
    ("`target_dim`", lambda: prune(0)),
    ("`target_dim`", lambda: prune(True)),
    ("`target_dim`", lambda: prune("half")),
    ("`target_dim`", lambda: prune(NAN)),
    ("(0, 1)", lambda: prune(1.0)),
    ("round_to", lambda: prune(6, round_to=4)),
    ("`round_to`", lambda: prune(round_to=0)),
    ("`begin_step`", lambda: prune(begin_step=2.5)),
    ("`begin_step`", lambda: prune(begin_step=-1)),
    ("`prune_steps`", lambda: prune(prune_steps=0)),
    ("`update_every`", lambda: prune(update_every=0)),
    ("`method`", lambda: prune(method="size")),
    ("`compact`", lambda: prune(compact="now")),
    ("`compact`", lambda: prune(compact=True)),
    ("`groups`", lambda: prune(groups="ffn_0")),
    ("`targets`", lambda: by_targets(targets={"heads": 2})),
    ("`targets`", lambda: by_targets(targets={})),
    ("`targets['kv_groups']`", lambda: by_targets(targets={"kv_groups": 0})),
    ("`target_dim`", lambda: prune(2, targets={"neurons": 2})),
    ("`targets`", lambda: by_targets(targets={"neurons": 2}, target_flops=9)),
    ("`target_parameters`", lambda: by_targets(target_parameters=0)),
    ("`target_flops`", lambda: by_targets(target_flops=1.5)),
    ("`hidden_dim`", lambda: ki.PrunableGatedFFN(0)),
    ("`hidden_dim`", lambda: ki.PrunableFFN(2.5)),
    ("`hidden_dim`", lambda: ki.GatedFFN("8")),
    ("`mask`", lambda: ki.PrunableGatedFFN(4).mask),
    ("`compact()`", lambda: ki.PrunableGatedFFN(4).compact()),
    ("`ema_decay`", lambda: Sensitivity(ema_decay=1.0)),
    ("`row_reduce`", lambda: Sensitivity(row_reduce="sum")),
    ("`matrix_reduce`", lambda: Sensitivity(matrix_reduce=None)),
    ("`seed`", lambda: Random(seed=-1)),
    ("`seed`", lambda: LearnedMask(seed=0.5)),
    ("`warmup_share`", lambda: LearnedMask(warmup_share=2)),
    ("`mask_learning_rate`", lambda: LearnedMask(mask_learning_rate=-1)),
    ("`num_samples`", lambda: Activation(np.ones((2, 8)), num_samples=0)),
    ("`batch_size`", lambda: Activation(np.ones((2, 8)), batch_size=0)),
    ("`aggregation`", lambda: Activation(aggregation="max")),
    ("`peak_learning_rate`", lambda: ki.CosineDecay(-1, 0, 10)),
    ("`peak_learning_rate`", lambda: ki.CosineDecay(NAN, 0, 10)),
    ("`end_learning_rate`", lambda: ki.CosineDecay(0.1, 0.2, 10)),
    ("`total_steps`", lambda: ki.CosineDecay(0.1, 0, 0)),
    ("`warmup_steps`", lambda: ki.CosineDecay(0.1, 0, 10, 11)),
    ("`start_step`", lambda: ki.CosineDecay(0.1, 0, 10, start_step=-1)),
    ("`decay_steps`", lambda: ki.WarmupStableDecay(1, 0, 10, 5, 6)),
    ("`stages`", lambda: ki.StagedSchedule([])),
    ("LearningRateSchedule", lambda: ki.StagedSchedule([(0.1, 5)])),
    ("`target_dim`", lambda: ki.CubicWidth(8, 9, 0, 1)),
    ("`step`", lambda: ki.CubicWidth(8, 4, 0, 1)(-1)),
    ("`log_dir`", lambda: ki.Monitor("")),
    ("`neurons_every`", lambda: ki.Monitor("logs", neurons_every=0)),
    ("`update_every`", lambda: ki.Monitor("logs", update_every=0)),
    ("`every`", lambda: ki.Checkpoint("folder", every=0)),
    ("`keep`", lambda: ki.Checkpoint("folder", keep=0)),
    ("`identity`", lambda: ki.Checkpoint("folder", identity={"seed": {1, 2}})),
    ("`model`", lambda: ki.explain("model")),
    ("`model`", lambda: ki.compact("model")),
    ("`model`", lambda: ki.find_ffns(None)),
    ("not built", lambda: ki.compact(keras.Sequential([ki.PrunableGatedFFN(4)]))),
    ("`width`", lambda: ki.sliced(m.biased(), 0)),
    ("(0, 1)", lambda: ki.sliced(m.biased(), 1.0)),
    ("must name", lambda: ki.sliced(m.biased(), {})),
    ("ffn_1_up", lambda: ki.sliced(m.biased(), {"ffn_2": 4})),
    ("ffn_0_up", lambda: ki.sliced(m.biased(), 17)),
    ("widths", lambda: ki.ElasticCallback({})),
    ("`begin_step`", lambda: ki.ElasticCallback(HALF, begin_step=-1)),
    ("`sample`", lambda: ki.ElasticCallback(HALF, sample={"full": 0.5, "half": 0.4})),
]


@pytest.mark.parametrize("word, call", ARGUMENTS)
def test_arguments(word, call):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert word in str(caught.value)


def softmax():
    return m.net(D(12, name="up"), L.Softmax(), D(3, name="out"), shape=(5, 8))


def conv():
    return m.normed_channels()


def frozen_channels():
    model = m.normed_channels()
    model.get_layer("first").trainable = False
    return model


def unused():
    inputs = keras.Input((5, 8))
    hidden = D(8, name="down")(D(12, "relu", name="up")(inputs))
    hidden = keras.ops.stop_gradient(hidden)
    return keras.Model(inputs, D(3, name="out")(inputs + hidden))


class Odd(keras.optimizers.SGD):
    """Keeps one variable for all."""

    def build(self, variables):
        super().build(variables)
        self.odd = [self.add_variable((3,), name="odd_one")]


def fitted(*callbacks, poison=None, **arguments):
    """A call: fits a model with callbacks."""

    def call(model, folder):
        x, y = data(model)
        y = y if poison is None else y * poison
        made = [make(folder) if callable(make) else make for make in callbacks]
        given = {"batch_size": 4, "verbose": 0, **arguments}
        model.fit(x, y, callbacks=made, **given)

    return call


def data(model, count=16):
    rng = np.random.default_rng(0)
    shapes = model.input_shape[1:], model.output_shape[1:]
    return [rng.normal(size=(count, *shape)).astype("float32") for shape in shapes]


def shrunk(*arguments, **keywords):
    return lambda model, folder: ki.shrink(model, *arguments, **keywords)


def saved_by_another(change):
    """A call: restores a checkpoint of a run that differs."""

    def call(model, folder):
        make, optimizer, identity = change
        other = make()
        other.compile(optimizer, "mse")
        x, y = data(other)
        fit = {"verbose": 0, "callbacks": [ki.Checkpoint(folder, identity=identity)]}
        other.fit(x, y, **fit)
        ki.Checkpoint(folder, identity={"seed": 1}).restore(model)

    return call


HEADS = {"kv_groups": 1}
CHANNELS = {"channels": 0.5}
#: (class, word, model, call, optimizer): refused with a model at hand.
MODELS = [
    (ArgumentError, "none of", m.biased, fitted(prune(groups=lambda f: False)), "adam"),
    (ArgumentError, "13", m.biased, fitted(prune(13)), "adam"),
    (ArgumentError, "4 steps", m.biased, fitted(prune(4, 3, 3)), "adam"),
    (ArgumentError, "ffn_0_up", m.frozen, fitted(prune()), "adam"),
    (ArgumentError, "`groups`", m.frozen, fitted(prune(groups=lambda f: True)), "adam"),
    (ArgumentError, "explain", softmax, fitted(prune()), "adam"),
    (
        ArgumentError,
        "first: frozen",
        frozen_channels,
        fitted(by_targets(targets=CHANNELS)),
        "sgd",
    ),
    (
        ArgumentError,
        "by unit",
        conv,
        fitted(by_targets(targets=CHANNELS, method=Sensitivity(row_reduce="max"))),
        "sgd",
    ),
    (
        ArgumentError,
        "keeps 5",
        m.heads,
        fitted(by_targets(targets={"kv_groups": 5})),
        "sgd",
    ),
    (
        ArgumentError,
        "data",
        m.heads,
        fitted(by_targets(targets=HEADS, method="activation")),
        "sgd",
    ),
    (ArgumentError, "attention", m.biased, fitted(by_targets(targets=HEADS)), "sgd"),
    (
        ArgumentError,
        "cannot be met",
        m.biased,
        fitted(by_targets(target_parameters=10)),
        "sgd",
    ),
    (ArgumentError, "odd_one", m.biased, fitted(prune()), Odd),
    (
        ArgumentError,
        "Adafactor",
        m.biased,
        fitted(prune()),
        keras.optimizers.Adafactor,
    ),
    (
        ArgumentError,
        "in_place",
        users.blocks_in_a_list,
        lambda model, folder: ki.compact(model),
        "sgd",
    ),
    (
        ArgumentError,
        "data",
        m.biased,
        shrunk({"neurons": 5}, None, "sensitivity"),
        "sgd",
    ),
    (
        ArgumentError,
        "data",
        m.biased,
        shrunk({"neurons": 5}, None, "activation"),
        "sgd",
    ),
    (
        ArgumentError,
        "targets",
        m.biased,
        shrunk({"neurons": 5}, np.ones((4, 5, 8)), "sensitivity"),
        "sgd",
    ),
    (
        ArgumentError,
        "sample",
        m.biased,
        shrunk({"neurons": 5}, [], "sensitivity"),
        "sgd",
    ),
    (
        ArgumentError,
        "learned_mask",
        m.biased,
        shrunk({"neurons": 5}, None, "learned_mask"),
        "sgd",
    ),
    (ArgumentError, "17", m.biased, shrunk({"neurons": 17}, None, "magnitude"), "sgd"),
    (
        ArgumentError,
        "`targets`",
        m.biased,
        shrunk({"heads": 1}, None, "magnitude"),
        "sgd",
    ),
    (
        CheckpointError,
        "SGD",
        m.biased,
        saved_by_another((m.biased, "sgd", {"seed": 1})),
        "adam",
    ),
    (
        CheckpointError,
        "seed",
        m.biased,
        saved_by_another((m.biased, "adam", {"seed": 2})),
        "adam",
    ),
    (
        CheckpointError,
        "another model",
        m.biased,
        saved_by_another((m.ungated, "adam", {"seed": 1})),
        "adam",
    ),
]


@pytest.mark.parametrize("error, word, make, call, optimizer", MODELS)
def test_with_a_model(error, word, make, call, optimizer, tmp_path):
    model = m.drawn(make())
    model.compile(optimizer if isinstance(optimizer, str) else optimizer(0.01), "mse")
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [to_numpy(variable) for variable in variables]
    with pytest.raises(error) as caught:
        call(model, tmp_path)
    assert word in str(caught.value)
    after = [*model.variables, *model.optimizer.variables]
    assert [id(variable) for variable in after] == [id(v) for v in variables]
    for value, variable in zip(before, variables, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
    assert "apply" not in vars(model.optimizer)  # and no pruner is left behind


@pytest.mark.parametrize(
    "make, poison, word", [(unused, None, "up"), (m.biased, np.nan, "ffn_0_up")]
)
@pytest.mark.filterwarnings("ignore")
def test_stops_before_anything_is_cut(make, poison, word):
    """What only training shows: no gradient reaches a unit, or none that is finite."""
    model = m.drawn(make())
    model.compile("sgd", "mse")
    shapes = [tuple(variable.shape) for variable in model.variables]
    with pytest.raises(PruningStopped) as caught:
        fitted(prune(), poison=poison)(model, None)
    assert word in str(caught.value)
    assert [tuple(variable.shape) for variable in model.variables] == shapes
