"""`compact="progressive"`: narrower at milestones, and nothing else changes."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._callbacks.run import stored_neurons
from tests.support import algorithm_reference as reference
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
    arguments = {"begin_step": 3, "prune_steps": 14, **changes}
    epochs = arguments.pop("epochs", 3)
    model = residual_model(hidden_dims)
    set_random_weights(model)
    model.compile(optimizer or adamw(), "mse")
    watch, losses = Watch(), LossRecorder()
    prune = ki.IdeaPruneCallback(target, compact=compact, **arguments)
    callbacks = [watch, prune, losses]
    history = model.fit(*data, epochs=epochs, callbacks=callbacks, **FIT)
    return model, watch, losses.losses, history.history


@pytest.mark.daily("torch", "jax")
def test_equals_algorithm_1(data):
    """Every mask, score and weight of every step, compiled, in `fit`."""
    ours, theirs = adamw(), reference.AdamW(0.01, decay=0.01, epsilon=EPSILON)
    model = residual_model()
    set_random_weights(model)
    model.compile(ours, "mse")
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 64, 8)] * 2
    kernels = [[to_numpy(k) for k in ffn.kernels] for ffn in ki.find_ffns(model)]
    kernels.append(to_numpy(model.get_layer("head").kernel))
    span = (4, 3, 8, 0.4, "mean", "max")
    steps = reference.run(kernels, batches, theirs, *span)
    watch, losses = Watch(), LossRecorder()
    prune = ki.IdeaPruneCallback(4, 3, 8, compact="progressive")
    model.fit(x, y, epochs=2, callbacks=[watch, prune, losses], **FIT)
    steps = list(steps)
    expected = [loss for *_, loss in steps]
    np.testing.assert_allclose(losses.losses, expected, rtol=1e-4)
    for seen, (weights, scores, masks, _) in zip(watch.seen, steps, strict=True):
        for ffn, kernel, score, mask in zip(seen, weights, scores, masks, strict=False):
            np.testing.assert_array_equal(ffn["mask"], mask)
            for ours, value in zip(ffn["kernels"], kernel, strict=True):
                np.testing.assert_allclose(ours, value, rtol=1e-5, atol=1e-5)
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
