"""What is refused, and the message: which argument, what came, what is allowed."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Activation, LearnedMask, Random, Sensitivity
from tests.support.helpers import residual_model

DATA = np.zeros((64, 5, 8)), np.zeros((64, 5, 1))


def prune(target_dim=4, begin_step=2, prune_steps=3, **arguments):
    return ki.IdeaPruneCallback(target_dim, begin_step, prune_steps, **arguments)


ARGUMENTS = [
    (lambda: ki.PrunableGatedFFN(0), "`hidden_dim` must be an integer >= 1.*=0"),
    (lambda: ki.PrunableGatedFFN(2.5), "`hidden_dim` must be an integer.*=2.5"),
    (lambda: ki.PrunableGatedFFN(True), "`hidden_dim` must be an integer.*=True"),
    (lambda: ki.GatedFFN("8"), "`hidden_dim` must be an integer.*='8'"),
    (lambda: ki.GatedFFN(8, use_bias=1), "`use_bias` must be True or False.*=1"),
    (lambda: ki.GatedFFN(8, activation="no"), "no"),
    (lambda: Sensitivity(ema_decay=1.0), r"`ema_decay`.*\[0.0, 1.0\).*1.0"),
    (lambda: Sensitivity(ema_decay=-0.1), "`ema_decay` must be.*-0.1"),
    (lambda: Sensitivity(row_reduce="sum"), "`row_reduce`.*'mean', 'max'"),
    (lambda: Sensitivity(matrix_reduce=None), "`matrix_reduce` must be"),
    (lambda: ki.PrunableGatedFFN(8, ema_decay=0.4), "Unrecognized.*ema_decay"),
    (lambda: Random(seed=-1), "`seed` must be an integer >= 0.*=-1"),
    (lambda: LearnedMask(seed=0.5), "`seed` must be an integer >= 0.*=0.5"),
    (lambda: LearnedMask(warmup_share=2), r"`warmup_share`.*\[0.0, 1.0\].*=2"),
    (lambda: LearnedMask(mask_learning_rate=-1), "`mask_learning_rate` must be.*=-1"),
    (
        lambda: LearnedMask(multiplier_learning_rate=None),
        "`multiplier_learning_rate` must be",
    ),
    (lambda: Activation(num_samples=0), "`num_samples` must be an integer >= 1"),
    (lambda: Activation(batch_size=0), "`batch_size` must be an integer >= 1"),
    (lambda: Activation(aggregation="max"), "`aggregation` must be one of 'paper'"),
    (
        lambda: Activation({"x": np.ones(3)}, padding_mask=np.ones(3)),
        "`padding_mask` goes with `data` that is one",
    ),
    (lambda: prune(groups="ffn_0"), "`groups` must be a function.*='ffn_0'"),
    (lambda: ki.explain("model"), "`model` must be a Keras model or layer.*str"),
    (lambda: ki.CosineDecay(-1, 0, 10), "`peak_learning_rate` must be.*=-1"),
    (lambda: ki.CosineDecay(0.1, 0.2, 10), r"`end_learning_rate`.*\[0.0, 0.1\].*0.2"),
    (lambda: ki.CosineDecay(0.1, 0, 0), "`total_steps` must be an integer >= 1"),
    (lambda: ki.CosineDecay(0.1, 0, 10, 11), "`warmup_steps`.*<= 10.*=11"),
    (lambda: ki.CosineDecay(0.1, 0, 10, start_step=-1), "`start_step` must be.*=-1"),
    (lambda: ki.CosineDecay(float("nan"), 0, 10), "`peak_learning_rate`.*nan"),
    (lambda: ki.WarmupStableDecay(1, 0, 10, 5, 6), "`decay_steps`.*<= 5.*=6"),
    (lambda: ki.StagedSchedule([]), "`stages` must hold at least one"),
    (lambda: ki.StagedSchedule([(0.1, 5)]), "pair .LearningRateSchedule, steps"),
    (lambda: ki.CubicWidth(8, 9, 0, 1), "`target_dim`.*<= 8.*=9"),
    (lambda: ki.CubicWidth(8, 4, -1, 1), "`begin_step` must be.*=-1"),
    (lambda: ki.CubicWidth(8, 4, 0, 0), "`prune_steps` must be an integer >= 1"),
    (lambda: ki.CubicWidth(8, 4, 0, 1)(-1), "`step` must be an integer >= 0"),
    (lambda: prune(target_dim=0), "`target_dim` must be an integer >= 1.*=0"),
    (lambda: prune(target_dim=1.0), r"float in \(0, 1\).*=1.0"),
    (lambda: prune(target_dim=True), "`target_dim` must be.*=True"),
    (lambda: prune(target_dim=6, round_to=4), "multiple of round_to=4.*=6"),
    (lambda: prune(begin_step=2.5), "`begin_step` must be an integer.*=2.5"),
    (lambda: prune(prune_steps=0), "`prune_steps` must be an integer >= 1"),
    (lambda: prune(update_every=0), "`update_every` must be an integer >= 1"),
    (lambda: prune(method="size"), "`method` must be one of 'sensitivity'"),
    (lambda: prune(compact="now"), "`compact` must be one of 'end', 'progressive', "),
    (lambda: prune(compact=True), "`compact` must be one of 'end'.*Received.*True"),
    (lambda: prune(log_dir=5), "`log_dir` must be the path of a folder.*=5"),
    (lambda: ki.Monitor(""), "`log_dir` must be the path of a folder.*=''"),
    (lambda: ki.Monitor("logs", update_every=0), "`update_every` must be an integer"),
    (lambda: ki.Monitor("logs", neurons_every=1.5), "`neurons_every` must be an int"),
    (lambda: ki.Monitor("logs", tokens_per_batch=0), "`tokens_per_batch` must be an"),
    (lambda: ki.Monitor("logs", peak_flops=-1), "`peak_flops` must be a number"),
    (lambda: ki.Monitor("logs", peak_flops=0), "`peak_flops` must be above 0.*0"),
    (lambda: ki.compact("model"), "`model` must be a Keras model or layer.*str"),
    (lambda: ki.find_ffns(None), "`model` must be a Keras model or layer.*NoneType"),
    (lambda: ki.PrunableGatedFFN(4).mask, "`mask`.*is not built"),
    (lambda: ki.PrunableGatedFFN(4).compact(), r"`compact\(\)`.*is not built"),
    (lambda: ki.compact(keras.Sequential([ki.PrunableGatedFFN(4)])), "is not built"),
    (lambda: ki.GatedFFN(4).build((3,)), "rank >= 2"),
    (lambda: ki.GatedFFN(4).build((2, None)), "last dimension is known"),
    (lambda: ki.functional.ffn_flops(8, 4, tokens=-1), "`tokens` must be"),
    # When `fit` begins.
    (
        lambda: fit(prune(groups=lambda ffn: False), DATA),
        "takes none of the FFNs.*one of: ffn_0, ffn_",
    ),
    (lambda: fit(prune(target_dim=13), DATA), "keeps 13 neurons, but ffn_1 has 12."),
    (
        lambda: fit(prune(begin_step=5, prune_steps=4), DATA),
        r"5 \+ 4 = 9, but.*8 steps when this `fit`",
    ),
]


@pytest.mark.parametrize("call, message", ARGUMENTS)
def test_arguments(call, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def fit(callback, data, model=None, compile_model=True, **arguments):
    model = model or residual_model((16, 12))
    if compile_model:
        model.compile("adam", "mse")
    arguments = {"batch_size": 8, "verbose": 0, **arguments}
    model.fit(*data, callbacks=[callback], **arguments)


def test_nothing_that_can_be_pruned(data):
    model = keras.Sequential([keras.Input((5, 8)), keras.layers.Dense(1, name="out")])
    said = "no FFN whose neurons can be pruned.*out: it is an output of the model"
    with pytest.raises(ValueError, match=said):
        fit(prune(), data, model)


def test_not_compiled():
    callback = prune()
    callback.set_model(residual_model())
    with pytest.raises(ValueError, match="not compiled with an optimizer.*compile"):
        callback.on_train_begin()


def test_frozen(data):
    model = residual_model()
    model.get_layer("ffn_0").trainable = False
    with pytest.raises(ValueError, match=r"ffn_0: frozen.*name not in \['ffn_0'\]"):
        fit(prune(), data, model)
    with pytest.raises(ValueError, match="let `groups` return False for ffn_0 too"):
        fit(prune(groups=lambda ffn: True), data, model)
    fit(prune(groups=lambda ffn: ffn.name not in ["ffn_0"]), data, model)  # as it says
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 4]


def test_pruning_what_is_compacted_already(data):
    """It is a layer like any other, but can only become narrower."""
    model = residual_model()
    fit(prune(target_dim=8), data, model)
    with pytest.raises(ValueError, match="keeps 9 neurons, but ffn_0 has 8."):
        fit(prune(target_dim=9), data, model)
    with pytest.raises(ValueError, match="target_parameters=1,000,000, which allows 1"):
        fit(prune(target_dim=None, target_parameters=1_000_000), data, model)
    fit(prune(target_dim=4), data, model)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {4}


def test_a_fraction_counts_from_the_width_at_first(data, recwarn):
    model = residual_model()
    model.compile("sgd", "mse")

    def again(**arguments):
        model.fit(*data, batch_size=8, callbacks=[prune(**arguments)], verbose=0)

    again(target_dim=0.5)
    again(target_dim=0.5)  # as a resumed run does
    assert not [w for w in recwarn if "left to prune" in str(w.message)]
    later = {"begin_step": 20, "prune_steps": 3}
    with pytest.warns(
        UserWarning, match="left to prune.*before any narrowing, .16, 12"
    ):
        again(target_dim=0.5, **later)
    with pytest.raises(ValueError, match="counts from the width before any narrowing"):
        again(target_dim=0.75, **later)


def test_off_the_way_to_the_loss(data):
    inputs = keras.Input((5, 8))
    ffn = ki.PrunableGatedFFN(16)
    unused = keras.ops.stop_gradient(ffn(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs + unused))
    # On jax the missing gradient is a zero; the others leave it out and warn.
    with pytest.raises(
        RuntimeError, match="No finite gradient has reached prunable_gated_ffn"
    ):
        with pytest.warns() if keras.backend.backend() != "jax" else _nothing():
            fit(prune(), data, model)


def _nothing():
    import contextlib

    return contextlib.nullcontext()


def test_steps_beyond_the_end_when_epochs_begin_later(data):
    model = residual_model()
    with pytest.raises(ValueError, match=r"8 steps when this `fit` ends"):
        fit(prune(5, 1, 20), data, model, epochs=3, initial_epoch=2)
    fit_on = {"batch_size": 8, "verbose": 0}
    model.fit(*data, **fit_on)  # and no schedule is left behind
    assert [ffn.width for ffn in ki.find_ffns(model)] == [16, 12]


def test_a_metric_that_no_config_makes(data):
    class Odd(keras.metrics.Mean):
        def __init__(self, scale):
            super().__init__("odd")

        def update_state(self, y, p, sample_weight=None):
            return super().update_state(y)

    model = residual_model()
    model.compile("adam", "mse", metrics=[Odd(2)])
    with pytest.raises(ValueError, match="Metric 'odd' cannot be made again"):
        ki.compact(model)
