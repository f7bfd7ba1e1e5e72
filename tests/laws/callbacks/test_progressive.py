"""`compact="progressive"`: narrower at milestones, and nothing else changes."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.callbacks.prune.narrowing import stored_neurons
from keras_idea.functional.milestones import bucket, milestones
from keras_idea.methods import Sensitivity
from tests.support import algorithm_reference as reference
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import (
    LossRecorder,
    residual_model,
    set_random_weights,
    to_numpy,
)

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch
# Large, so that Adam does not blow float32 noise in the tiniest gradients up.
EPSILON = 1e-4


class Watch(keras.callbacks.Callback):
    """What the FFNs hold after every step, by the numbers that neurons had at first."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append([snapshot(ffn) for ffn in ki.find_ffns(self.model)])

    def widths(self, index=0):
        return [ffns[index]["hidden_dim"] for ffns in self.seen]


def snapshot(ffn):
    mask, at = to_numpy(ffn.mask), ffn.original_indices

    def spread(values, axis):
        shape = list(values.shape)
        shape[axis] = ffn.full_dim
        whole = np.zeros(shape)
        whole[(slice(None),) * axis + (at,)] = values
        return whole

    *entrances, down = (to_numpy(kernel) for kernel in ffn.kernels)
    kernels = [spread(kernel * mask, 1) for kernel in entrances]
    return {
        "hidden_dim": ffn.hidden_dim,
        "mask": spread(mask, 0),
        "scores": to_numpy(ffn.scores),
        "at": at,
        "kernels": [*kernels, spread(down * mask[:, None], 0)],
    }


def adamw(**arguments):
    return keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=EPSILON, **arguments)


def trained(compact, data, optimizer=None, target=4, hidden_dims=(16, 12), **changes):
    """A model of known weights after `epochs` of 8 steps, pruned from step 3 on."""
    arguments = {"begin_step": 3, "prune_steps": 14, "model": {}, **changes}
    epochs = arguments.pop("epochs", 3)
    model = residual_model(hidden_dims, **arguments.pop("model"))
    set_random_weights(model)
    model.compile(optimizer or adamw(), "mse")
    watch, losses = Watch(), LossRecorder()
    prune = ki.IdeaPruneCallback(target, compact=compact, **arguments)
    callbacks = [watch, prune, losses]
    history = model.fit(*data, epochs=epochs, callbacks=callbacks, **FIT)
    return model, watch, losses.losses, history.history


@pytest.mark.parametrize(
    "name, row_reduce, matrix_reduce",
    [("adamw", "mean", "max"), ("sgd", "max", "mean")],
)
def test_equals_algorithm_1(name, row_reduce, matrix_reduce, data):
    """Every mask, score and weight of every step, compiled, in `fit`."""
    ours, theirs = keras.optimizers.SGD(0.05), reference.SGD(0.05)
    if name == "adamw":
        ours, theirs = adamw(), reference.AdamW(0.01, decay=0.01, epsilon=EPSILON)
    model = residual_model()
    set_random_weights(model)
    model.compile(ours, "mse")
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 64, 8)] * 2
    kernels = [[to_numpy(k) for k in ffn.kernels] for ffn in ki.find_ffns(model)]
    kernels.append(to_numpy(model.get_layer("head").kernel))
    steps = reference.run(
        kernels, batches, theirs, 4, 3, 8, decay=0.4, f1=row_reduce, f2=matrix_reduce
    )
    watch, losses = Watch(), LossRecorder()
    method = Sensitivity(row_reduce=row_reduce, matrix_reduce=matrix_reduce)
    prune = ki.IdeaPruneCallback(4, 3, 8, method, compact="progressive")
    model.fit(x, y, epochs=2, callbacks=[watch, prune, losses], **FIT)
    steps = list(steps)
    expected = [loss for *_, loss in steps]
    np.testing.assert_allclose(losses.losses, expected, rtol=1e-4)
    for seen, (weights, scores, masks, _) in zip(watch.seen, steps, strict=True):
        for ffn, kernel, score, mask in zip(seen, weights, scores, masks, strict=False):
            np.testing.assert_array_equal(ffn["mask"], mask)
            for ours, value in zip(ffn["kernels"], kernel, strict=True):
                np.testing.assert_allclose(ours, value, rtol=1e-5, atol=1e-5)
            if row_reduce == "mean":
                score = score.mean(axis=2)
            if ffn["hidden_dim"] > 4:  # at the target nothing is tracked
                np.testing.assert_allclose(
                    ffn["scores"],
                    score[:, ffn["at"]],
                    rtol=1e-5,
                    atol=1e-5 * score.max(),
                )
    # 12, 9, 7 and 6 live after the steps 4 to 7; all that is left goes after step 11.
    assert watch.widths() == [16] * 4 + [12, 9, 7] + [6] * 4 + [4] * 5


CASES = {
    "a fraction, every third step": {
        "target": 0.3,
        "round_to": 2,
        "update_every": 3,
        "prune_steps": 14,
        "hidden_dims": (24, 16),
    },
    "accumulated": {
        "optimizer": {"gradient_accumulation_steps": 2},
        "epochs": 4,
        "prune_steps": 8,
    },
    "down to one": {"target": 1, "hidden_dims": (9, 5), "prune_steps": 6, "epochs": 2},
    # The root of 121 steps: 11 milestones where nothing is compiled.
    "many steps": {"hidden_dims": (64, 24), "prune_steps": 121, "epochs": 16},
    "of Dense layers": {"model": {"ffn": dense_gated}, "prune_steps": 8, "epochs": 2},
    "nothing to prune": {
        "target": 12,
        "hidden_dims": (12, 12),
        "prune_steps": 3,
        "epochs": 1,
    },
}
MOST = {"many steps": 11}
BACKEND = keras.backend.backend()


@pytest.mark.parametrize("case", CASES)
def test_equals_compact_end(case, data):
    """The same masks, losses, weights, slots and logs; narrower, not too often."""
    arguments = dict(CASES[case])
    optimizer = arguments.pop("optimizer", {})
    runs = [
        trained(compact, data, adamw(**optimizer), **arguments)
        for compact in ("progressive", "end")
    ]
    (model, watch, losses, logs), (other, expected, losses_of_end, logs_of_end) = runs
    np.testing.assert_allclose(losses, losses_of_end, rtol=2e-5)
    for seen, wanted in zip(watch.seen, expected.seen, strict=True):
        for ffn, ffn_of_end in zip(seen, wanted, strict=True):
            np.testing.assert_array_equal(ffn["mask"], ffn_of_end["mask"])
            for ours, theirs in zip(ffn["kernels"], ffn_of_end["kernels"], strict=True):
                np.testing.assert_allclose(ours, theirs, atol=2e-6)
    for name in ("width", "sparsity"):
        assert logs[name] == logs_of_end[name]
    variables = [*model.variables, *model.optimizer.variables]
    others = [*other.variables, *other.optimizer.variables]
    for ours, theirs in zip(variables, others, strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(
            to_numpy(ours), to_numpy(theirs), rtol=2e-4, atol=2e-6
        )
    for index in (0, 1):
        widths, full = watch.widths(index), watch.seen[0][index]["hidden_dim"]
        falls = np.flatnonzero(np.diff(widths))
        assert len(falls) <= MOST.get(case, 8) and (np.diff(widths) <= 0).all()
        if case in MOST and BACKEND == "torch" and index == 0:
            assert len(falls) > 8
        if case != "nothing to prune":
            assert len(falls) > len(np.flatnonzero(np.diff(expected.widths(index))))
        # Within a bucket (and the rounding of the other FFN's) of what lives.
        alive = [int(ffns[index]["mask"].sum()) for ffns in watch.seen]
        room = bucket(full, alive[-1]) + 1
        behind = zip(widths[1:], alive, strict=False)
        assert all(now <= before + room for now, before in behind)
    if "accumulated" not in case and case != "nothing to prune":
        ends = [ffn.hidden_dim for ffn in ki.find_ffns(model)]
        span = (3, arguments["prune_steps"], arguments.get("update_every", 1))
        fulls = arguments.get("hidden_dims", (16, 12))
        pairs = zip(fulls, ends, strict=True)
        schedules = [ki.CubicWidth(full, end, *span) for full, end in pairs]
        steps = {
            n + 1 for i in (0, 1) for n in np.flatnonzero(np.diff(watch.widths(i)))
        }
        foreseen = milestones(schedules, 3 + span[1], eager=BACKEND == "torch")
        assert steps <= set(foreseen) and foreseen[-1] in steps
        alive = sum(schedule(8) for schedule in schedules)
        assert logs["width"][0] == alive / 2
        assert np.isclose(logs["sparsity"][0], 1 - alive / sum(fulls))
    assert not any(ffn.state.active_track for ffn in ki.find_ffns(model))


def test_large_layers_become_multiples_of_128(data):
    """Filled up with dead neurons, which still do nothing."""
    arguments = {"target": 128, "hidden_dims": (1300,), "prune_steps": 4, "epochs": 1}
    model, watch, losses, _ = trained("progressive", data, **arguments)
    *_, losses_of_end, _ = trained("end", data, **arguments)
    widths = list(dict.fromkeys(watch.widths()))
    assert widths[0] == 1300 and widths[-1] == 128 and 4 <= len(widths) <= 6
    assert all(width % 128 == 0 for width in widths[1:])
    alive = [int(ffns[0]["mask"].sum()) for ffns in watch.seen]
    assert any(0 < w - n < 128 for w, n in zip(watch.widths()[1:], alive, strict=False))
    np.testing.assert_allclose(losses, losses_of_end, rtol=1e-4)
    np.testing.assert_array_equal(stored_neurons(np.array([0, 1, 0, 1]), 3), [0, 1, 3])


@pytest.mark.parametrize("method", ["random", "activation", "learned_mask"])
def test_methods_that_decide_once_shrink_once(method, data):
    runs = [
        trained(compact, data, method=method, prune_steps=8)
        for compact in ("progressive", "end")
    ]
    (model, watch, losses, logs), (_, expected, losses_of_end, logs_of_end) = runs
    assert watch.widths() == expected.widths()
    assert sorted(set(watch.widths())) == [4, 16]
    assert losses == losses_of_end and logs["width"] == logs_of_end["width"]
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]


def test_stopped_in_the_middle_and_gone_on_with(data):
    """Compacted to its present width; a second `fit` ends at the target."""
    model = residual_model()
    model.compile(adamw(), "mse")
    prune = ki.IdeaPruneCallback(0.25, 3, 20, compact="progressive")

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 6

    model.fit(*data, epochs=3, callbacks=[prune, Stop()], **FIT)
    ffns = ki.find_ffns(model)
    widths = [ki.CubicWidth(full, full // 4, 3, 20)(7) for full in (16, 12)]
    assert [ffn.width for ffn in ffns] == widths
    assert all(
        w <= ffn.hidden_dim < ffn.full_dim for w, ffn in zip(widths, ffns, strict=True)
    )
    narrow = ki.compact(model)
    assert [narrow.get_layer(f"ffn_{i}").hidden_dim for i in (0, 1)] == widths
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0),
        model.predict(data[0], verbose=0),
        atol=1e-6,
    )
    model.fit(*data, epochs=1, **FIT)  # without the callback it is not pruned
    assert [ffn.width for ffn in ffns] == widths
    with pytest.warns(UserWarning, match="drops immediately: .* neurons and 1 more"):
        logs = model.fit(*data, epochs=2, callbacks=[prune], **FIT).history
    assert [(ffn.hidden_dim, ffn.width) for ffn in ffns] == [(4, 4), (3, 3)]
    assert logs["sparsity"][-1] == 0.75 and ffns[0].state.active_track is None
    again = model.fit(*data, epochs=1, callbacks=[prune], **FIT).history
    assert again["width"] == [3.5] and again["sparsity"] == [0.75]
