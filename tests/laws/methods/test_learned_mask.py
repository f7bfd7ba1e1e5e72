"""Learned masks in the optimizer's step, against NumPy in float64."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._step.pruner import pruner_of
from keras_idea.methods import LearnedMask
from tests.support import case_models, hub_models
from tests.support import method_reference as reference
from tests.support.helpers import residual_model, set_random_weights, to_numpy

STEPS, SHARE, RATE = 8, 0.25, 0.05
TARGETS = {"ffn_0": 0.25, "ffn_1": 5 / 12}


def learning_model(optimizer, begin=0, **arguments):
    """A compiled model whose masks are learned from the next step on."""
    model = residual_model(**arguments)
    set_random_weights(model)
    model.compile(optimizer, "mse")
    return model, started(model, 0.25, begin)


def started(model, target, begin=0, **arguments):
    """Sets the callback to work as a loop of one's own does."""
    method = LearnedMask(seed=1, warmup_share=SHARE)
    prune = ki.IdeaPruneCallback(
        target, begin, STEPS, method=method, compact="off", **arguments
    )
    prune.set_model(model)
    prune.on_train_begin()
    prune.on_epoch_begin(0)
    prune.on_train_batch_begin(0)
    return prune


def learner_of(model):
    return pruner_of(
        getattr(model.optimizer, "inner_optimizer", model.optimizer)
    ).learner


def kernels(model):
    """`W` of each FFN, and the head: the down kernels hold `z W`."""
    weights, found = learner_of(model).weights, []
    for ffn in ki.find_ffns(model):
        *entrances, down = ffn.kernels
        found.append([*map(to_numpy, entrances), to_numpy(weights[id(down)][1])])
    return [*found, to_numpy(model.get_layer("head").kernel)]


def transcription(model, batches):
    learner = learner_of(model)
    weights = [
        [k.astype("float64") for k in ffn] if isinstance(ffn, list) else ffn
        for ffn in kernels(model)
    ]
    return reference.run(
        weights,
        [to_numpy(mask.log_alpha).astype("float64") for mask in learner.masks],
        [mask.stream for mask in learner.masks],
        batches,
        [mask.target_dim for mask in learner.masks],
        STEPS,
        SHARE,
        RATE,
    )


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(RATE),
    "accumulated": lambda: keras.optimizers.SGD(RATE, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.SGD(RATE, loss_scale_factor=8.0),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(RATE), initial_scale=16.0
    ),
}


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_the_transcription_step_by_step(data, name):
    """Masks, multipliers, weights and kernels, in float32 against float64."""
    x, y = data
    model, _ = learning_model(OPTIMIZERS[name]())
    parts = 2 if name == "accumulated" else 1
    batches = [(x[i % 8 * 8 :][:8], y[i % 8 * 8 :][:8]) for i in range(STEPS)]
    steps = transcription(model, batches)
    learner = learner_of(model)
    for (rows, labels), (weights, masks, multipliers, _) in zip(
        batches, steps, strict=True
    ):
        for part in range(parts):
            model.train_on_batch(rows[part::parts], labels[part::parts])
        for mask, log_alpha in zip(learner.masks, masks, strict=True):
            np.testing.assert_allclose(to_numpy(mask.log_alpha), log_alpha, atol=2e-5)
        found = to_numpy(learner.multipliers)[0]
        np.testing.assert_allclose(found, multipliers, atol=1e-5)
        *ffns, head = kernels(model)
        np.testing.assert_allclose(head, weights[-1], atol=2e-6)
        for ffn, expected in zip(ffns, weights, strict=False):
            for kernel, value in zip(ffn, expected, strict=True):
                np.testing.assert_allclose(kernel, value, atol=2e-6)
        step = int(model.optimizer.iterations)
        for ffn, mask, (*_, whole) in zip(
            ki.find_ffns(model), learner.masks, ffns, strict=False
        ):
            drawn = reference.sample(
                to_numpy(mask.log_alpha).astype("float64"),
                1e-6 + (1 - 2e-6) * reference.uniform(mask.stream, step, len(whole)),
            )
            kernel = to_numpy(ffn.kernels[-1])
            np.testing.assert_allclose(kernel, drawn[:, None] * whole, atol=2e-6)


UNITS = {
    "two calls": (case_models.called_twice, "neurons"),
    "two readers": (case_models.two_outputs, "neurons"),
    "heads": (lambda: case_models.heads(["grouped"]), "kv_groups"),
    "channels": (case_models.normed_channels, "channels"),
}


@pytest.mark.parametrize("name", UNITS)
def test_gradients_by_the_masks_of_other_units(name):
    """Differences of the loss, when one unit's factor moves in all that reads it."""
    make, kind = UNITS[name]
    keras.utils.set_random_seed(0)
    model = case_models.drawn(make())
    # The first half of an accumulated step only adds gradients up.
    model.compile(keras.optimizers.SGD(0.0, gradient_accumulation_steps=2), "mse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, *model.input_shape[1:])).astype("float32")
    y = [rng.normal(size=(4, *o.shape[1:])).astype("float32") for o in model.outputs]
    started(model, None, targets={kind: 0.5})
    learner = learner_of(model)
    drawn = [to_numpy(mask.drawn(0)) for mask in learner.masks]

    def loss(i, unit, by):
        for (kernel, weight), scale in scaled(learner, drawn, i, unit, by):
            kernel.assign(weight.value * scale)
        outputs = keras.tree.flatten(model(x, training=True))
        pairs = zip(map(to_numpy, outputs), y, strict=True)
        return sum(((a.astype("float64") - b) ** 2).mean() for a, b in pairs)

    expected = [
        [(loss(i, u, 0.01) - loss(i, u, -0.01)) / 0.02 for u in range(len(values))]
        for i, values in enumerate(drawn)
    ]
    learner.draw(0)
    model.train_on_batch(x, y if len(y) > 1 else y[0])
    for mask, wanted in zip(learner.masks, expected, strict=True):
        wanted = np.array(wanted, "float64")
        limit = 0.01 * np.abs(wanted).max()
        found = 2 * to_numpy(mask.learned)[3]
        np.testing.assert_allclose(found, wanted, atol=limit)


def scaled(learner, drawn, i, unit, by):
    """What is multiplied with each kernel's `W` if one factor of a draw moves."""
    scales = {key: 1.0 for key in learner.weights}
    for j, (mask, values) in enumerate(zip(learner.masks, drawn, strict=True)):
        values = values + (by * np.eye(len(values))[unit] if i == j else 0)
        for cut in mask.ffn.outgoing_cuts():
            factor = cut.spread(keras.ops.cast(values, "float32"), 1)
            scales[id(cut.variable)] = scales[id(cut.variable)] * factor
    return [(learner.weights[key], scale) for key, scale in scales.items()]


def test_experts_are_masked_each_by_itself():
    model = hub_models.tiny_lm("mixtral")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, weighted_metrics=None)
    x, y, *_ = hub_models.batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(0.5, 1, 3, method=LearnedMask())
    keras.Model.fit(model, x, y, 4, 2, 0, [prune], shuffle=False)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {12}


class Stop(keras.callbacks.Callback):
    """Ends training with an epoch, and notes what its files would hold."""

    def on_epoch_end(self, epoch, logs=None):
        self.kernel = to_numpy(ki.find_ffns(self.model)[0].kernels[-1])
        self.model.stop_training = True


def test_what_is_evaluated_and_left_if_it_stops_in_the_middle(data):
    """The first is the deterministic mask, times `W`; the last is `W`."""
    x, y = data
    model = residual_model((16,))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    whole = to_numpy(ki.find_ffns(model)[0].kernels[-1])
    stop, prune = Stop(), ki.IdeaPruneCallback(4, 2, 30, method="learned_mask")
    options = {"epochs": 9, "verbose": 0, "validation_data": (x, y)}
    with pytest.warns(UserWarning, match="step"):
        logs = model.fit(x[:32], y[:32], 8, callbacks=[prune, stop], **options).history
    rows = np.abs(stop.kernel).sum(1) > 0
    factors = stop.kernel[rows] / whole[rows]
    assert rows.sum() == 4
    np.testing.assert_allclose(factors, factors[:, :1].repeat(8, 1), rtol=1e-5)
    (ffn,) = ki.find_ffns(model)
    assert ffn.width == 16 and pruner_of(model.optimizer) is None
    np.testing.assert_array_equal(to_numpy(ffn.kernels[-1]), whole)
    ffn.kernels[-1].assign(stop.kernel)
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), logs["val_loss"], 1e-5)


def test_too_much_sparsity_for_a_learned_mask(data):
    model = residual_model((64,))
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(3, 9, 6, method="learned_mask")
    with pytest.raises(ValueError, match=r"ffn_0 from 64 to 3 neurons.*at least 4"):
        model.fit(*data, epochs=9, callbacks=[prune], verbose=0)
    assert int(model.optimizer.iterations) == 0
