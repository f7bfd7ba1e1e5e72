"""One contract for every method, on native models; and what each refuses."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import METHODS, Activation, LearnedMask, Random
from keras_idea.methods.method import Job
from tests.support.helpers import LossRecorder, residual_model, to_numpy
from tests.support.masks import prune_by_hand

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch
BEGIN, STEPS = 9, 6


def fitted(method, data, compact="off", epochs=3, policy=None, optimizer=None):
    """A model, its losses and its logs, pruned by a method over steps 9 to 15."""
    keras.utils.set_random_seed(0)
    model = residual_model((16, 12), dtype=policy)
    # The contract is about the compiled step; the rest need not wait for compilers.
    optimizer = optimizer or keras.optimizers.AdamW(0.01)
    model.compile(optimizer, "mse", run_eagerly=policy is not None)
    recorder = LossRecorder()
    prune = ki.IdeaPruneCallback(4, BEGIN, STEPS, method=method, compact=compact)
    history = model.fit(*data, epochs=epochs, callbacks=[prune, recorder], **FIT)
    return model, recorder.losses, history.history


def masks(model):
    return [to_numpy(ffn.mask) for ffn in ki.find_ffns(model)]


@pytest.mark.parametrize("name", [*METHODS, "activation with data"])
def test_every_method_ends_at_the_target_and_compacts(name, data):
    """Exactly, in every layer; narrowed in `fit` or after it, the same model."""
    method = Activation(data[0]) if name == "activation with data" else name
    model, losses, logs = fitted(method, data)
    ffns = ki.find_ffns(model)
    assert [(ffn.hidden_dim, ffn.width) for ffn in ffns] == [(16, 4), (12, 4)]
    assert all(mask.sum() == 4 for mask in masks(model))
    assert all(ffn.state.probe is None for ffn in ffns)
    assert logs["width"][0] == 14 and logs["width"][-1] == 4
    assert np.isclose(logs["sparsity"][-1], 1 - 8 / 28)
    assert "learning_rate" in logs

    narrow = ki.compact(model)
    ffns = [narrow.get_layer(f"ffn_{i}") for i in range(2)]
    assert [(type(ffn), ffn.hidden_dim) for ffn in ffns] == [(ki.GatedFFN, 4)] * 2
    shrunk, losses_of_shrunk, _ = fitted(method, data, compact="end")
    assert [ffn.hidden_dim for ffn in ki.find_ffns(shrunk)] == [4, 4]
    np.testing.assert_allclose(losses_of_shrunk, losses, rtol=1e-4)
    expected = model.predict(data[0], verbose=0)
    for other in (narrow, shrunk):
        np.testing.assert_allclose(
            other.predict(data[0], verbose=0), expected, atol=2e-5
        )


@pytest.mark.parametrize("name", METHODS)
def test_schedules_are_full_before_and_at_the_target_after(name):
    method = METHODS[name]()
    schedule = method.width_schedule(16, 4, BEGIN, STEPS, 1)
    widths = [schedule(step) for step in range(BEGIN + STEPS + 3)]
    assert widths[: BEGIN + 1] == [16] * (BEGIN + 1)
    assert widths[BEGIN + STEPS :] == [4] * 3
    assert widths == sorted(widths, reverse=True)


def test_one_shot_methods_fall_at_once_and_learned_masks_in_the_end():
    for method in (Random(), Activation()):
        schedule = method.width_schedule(16, 4, BEGIN, STEPS, 1)
        assert (schedule(BEGIN), schedule(BEGIN + 1)) == (16, 4)
        assert ki.IdeaPruneCallback(4, BEGIN, STEPS, method=method).end_step == BEGIN
    schedule = LearnedMask().width_schedule(16, 4, BEGIN, STEPS, 1)
    assert (schedule(BEGIN + STEPS - 1), schedule(BEGIN + STEPS)) == (16, 4)
    prune = ki.IdeaPruneCallback(4, BEGIN, STEPS, method="learned_mask")
    assert prune.end_step == BEGIN + STEPS


def test_the_seed_decides():
    """What a method draws; that the rest is the same is told by the losses above."""

    def draws(method):
        if isinstance(method, Random):
            return np.concatenate(
                [decision.mask for decision in method.decide(0, jobs)]
            )
        return [probe.stream for probe in method.make_probes(jobs)]

    ffns = ki.find_ffns(residual_model((16, 16)))
    jobs = [Job(ffn, i, 5, BEGIN, STEPS) for i, ffn in enumerate(ffns)]
    for method in (Random, LearnedMask):
        first, again, other = (draws(method(seed=seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert (np.array(first) != other).any()
    one, two = LearnedMask().make_probes(jobs)
    assert one.stream != two.stream


def test_random_masks_differ_by_layer_and_are_the_same_everywhere(data):
    keras.utils.set_random_seed(0)
    model = residual_model((16, 16))
    model.compile("sgd", "mse", run_eagerly=True)
    prune = ki.IdeaPruneCallback(5, 0, 1, method=Random(seed=3), compact="off")
    model.fit(*data, callbacks=[prune], **FIT)
    kept = [np.flatnonzero(mask).tolist() for mask in masks(model)]
    # NumPy's generator, seeded with (seed, layer); this is what it drew.
    expected = [
        sorted(np.argsort(np.random.default_rng([3, i]).random(16, "float32"))[-5:])
        for i in range(2)
    ]
    assert kept == expected and kept[0] != kept[1]


@pytest.mark.parametrize("last_alone", [False, True])
def test_random_keeps_the_same_neurons_in_shrink(data, last_alone):
    """Also of a model that is masked already, and where `groups` leaves a layer out."""
    keras.utils.set_random_seed(0)
    model = residual_model((16, 16))
    model.compile("sgd", "mse", run_eagerly=True)
    first, last = ki.find_ffns(model)
    prune_by_hand(last, np.arange(16) != 3)
    shrunk = ki.shrink(model, {"neurons": 5}, method=Random(seed=3))
    up = to_numpy(last.kernels[0])
    expected = to_numpy(ki.find_ffns(shrunk)[1].kernels[0])
    groups = (lambda ffn: ffn.name != first.name) if last_alone else None
    prune = ki.IdeaPruneCallback(
        5, 0, 1, method=Random(seed=3), compact="off", groups=groups
    )
    model.fit(*data, callbacks=[prune], **FIT)
    kept = np.flatnonzero(masks(model)[1])
    np.testing.assert_array_equal(up[:, kept], expected)


def test_random_in_two_stages_revives_nothing(data):
    model = residual_model((16,))
    model.compile("sgd", "mse", run_eagerly=True)
    kept = []
    for target, begin in ((8, 2), (4, 10)):
        prune = ki.IdeaPruneCallback(target, begin, 1, method="random", compact="off")
        model.fit(*data, callbacks=[prune], **FIT)
        kept.append(set(np.flatnonzero(masks(model)[0])))
    assert kept[1] < kept[0] and [len(k) for k in kept] == [8, 4]


@pytest.mark.parametrize(
    "name, policy", [("activation", "bfloat16"), ("learned_mask", "mixed_bfloat16")]
)
def test_half_precision(name, policy, data):
    model, losses, _ = fitted(name, data, policy=policy)
    assert [ffn.width for ffn in ki.find_ffns(model)] == [4, 4]
    assert np.isfinite(losses).all()


def scaled():
    # So high that the first steps overflow and are skipped.
    inner = keras.optimizers.Adam(0.01)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**60)


def test_float16_with_a_loss_scale(data):
    policy, optimizer = "mixed_float16", scaled()
    model, _, _ = fitted(
        "activation", data, epochs=8, policy=policy, optimizer=optimizer
    )
    assert int(model.optimizer.iterations) < 64
    assert [ffn.width for ffn in ki.find_ffns(model)] == [4, 4]


@pytest.mark.parametrize("name", ["activation", "learned_mask"])
def test_a_run_that_is_stopped_leaves_no_probe_behind(name, data):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 3

    model = residual_model((16,))
    model.compile(keras.optimizers.AdamW(0.01), "mse", run_eagerly=True)
    begin, steps = (6, 2) if name == "activation" else (2, 6)
    prune = ki.IdeaPruneCallback(4, begin, steps, method=name)
    model.fit(*data, callbacks=[prune, Stop()], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert (ffn.width, ffn.state.probe) == (16, None)
    assert len(model.optimizer._trainable_variables) == len(model.trainable_variables)
    narrow = ki.compact(model)
    for _ in range(2):
        np.testing.assert_allclose(
            model.train_on_batch(*data), narrow.train_on_batch(*data), rtol=1e-4
        )


def test_a_second_stage_by_another_method(data):
    model = residual_model((16,))
    model.compile("adam", "mse", run_eagerly=True)
    stages = [("random", 8, 2, 1, "off"), ("learned_mask", 4, 9, 4, "end")]
    for method, target, begin, steps, compact in stages:
        prune = ki.IdeaPruneCallback(target, begin, steps, method, compact)
        model.fit(*data, callbacks=[prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert (ffn.hidden_dim, ffn.width) == (4, 4)


def refused(method, data, message, begin=BEGIN, target=4, hidden=16, optimizer="sgd"):
    model = residual_model((hidden,))
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(target, begin, STEPS, method=method)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, epochs=6, callbacks=[prune], **FIT)
    assert ki.find_ffns(model)[0].state.probe is None
    assert int(model.optimizer.iterations) == 0


def test_too_much_sparsity_for_a_learned_mask(data):
    message = r"ffn_0 from 64 to 3 neurons.*exceed 0.953. Keep at least 4"
    refused("learned_mask", data, message, target=3, hidden=64)


def test_nothing_to_gather_from(data):
    message = r"before begin_step=0.*Activation\(data=...\), or begin later"
    refused("activation", data, message, begin=0)


@pytest.mark.parametrize("method", ["activation", "learned_mask"])
def test_gradient_accumulation(method, data):
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    refused(method, data, "gradient_accumulation_steps=2", optimizer=optimizer)


def test_gradient_accumulation_that_is_fine(data):
    model = residual_model((16,))
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse", run_eagerly=True)
    prune = ki.IdeaPruneCallback(4, 3, 1, method=Activation(data[0]))
    model.fit(*data, callbacks=[prune], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == 4


@pytest.mark.parametrize(
    "optimizer", [lambda: keras.optimizers.SGD(0.01, loss_scale_factor=8.0), scaled]
)
def test_a_scaled_loss(optimizer, data):
    message = "learned_mask.* scales the loss by a factor.*Use 'mixed_bfloat16'"
    refused("learned_mask", data, message, optimizer=optimizer())


def test_several_replicas(data):
    class Strategy:
        num_replicas_in_sync = 4

    class Model:
        optimizer, distribute_strategy = None, Strategy()

    jobs = [Job(*ki.find_ffns(residual_model((16,))), 0, 4, BEGIN, STEPS)]
    with pytest.raises(ValueError, match="each of the 4 replicas of Strategy"):
        LearnedMask().check(jobs, Model(), start=0)


def test_learning_that_would_be_over(data):
    model = residual_model((16,))
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(*data, **FIT)
    prune = ki.IdeaPruneCallback(4, 2, 6, method="learned_mask")
    with pytest.raises(ValueError, match="learns up to step 8.*begins at step 8"):
        model.fit(*data, callbacks=[prune], **FIT)
