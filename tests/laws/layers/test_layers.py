"""The layers themselves: values, conformance, serialization, dtypes."""

import keras
import numpy as np
import pytest
from keras.src import testing

import keras_idea as ki
from tests.support.helpers import residual_model, start_pruning, to_numpy

LAYERS = [ki.GatedFFN, ki.PrunableGatedFFN, ki.UngatedFFN, ki.PrunableFFN]


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("cls", LAYERS)
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("use_bias", [False, True])
def test_values_for_any_rank(cls, shape, use_bias):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype("float32")
    layer = cls(6, "silu", use_bias=use_bias)
    layer.build(shape)
    for weight in layer.weights:
        if "kernel" in weight.name or "bias" in weight.name:
            weight.assign(rng.normal(size=weight.shape))
    names = ("up", "gate", "down") if "Gated" in cls.__name__ else ("up", "down")
    up, *gate, down = (to_numpy(getattr(layer, f"{n}_kernel")) for n in names)
    assert up.shape == (4, 6) and down.shape == (6, 4)
    biases = [0] * len(names)
    if use_bias:
        biases = [to_numpy(getattr(layer, f"{name}_bias")) for name in names]
    # `up` is the activated one, as in the paper.
    hidden = silu(x @ up + biases[0])
    for kernel in gate:
        assert kernel.shape == (4, 6)
        hidden = hidden * (x @ kernel + biases[1])
    expected = hidden @ down + biases[-1]
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(
    "cls, trainable, resting",
    list(zip(LAYERS, (3, 3, 2, 2), (0, 3, 0, 3), strict=True)),
)
def test_keras_conformance(cls, trainable, resting):
    testing.TestCase().run_layer_test(
        cls,
        init_kwargs={"hidden_dim": 6, "activation": "gelu"},
        input_shape=(2, 3, 4),
        expected_output_shape=(2, 3, 4),
        expected_num_trainable_weights=trainable,
        expected_num_non_trainable_weights=resting,
        supports_masking=True,
    )


@pytest.mark.parametrize("seed", [None, 1, "generator"])
def test_up_and_gate_start_different(seed):
    if seed == "generator":
        seed = keras.random.SeedGenerator(3)
    initializer = keras.initializers.GlorotUniform(seed=seed)
    layer = ki.GatedFFN(6, kernel_initializer=initializer)
    layer.build((None, 4))
    assert np.abs(to_numpy(layer.up_kernel) - to_numpy(layer.gate_kernel)).max() > 0.1


def test_without_a_schedule_it_prunes_nothing(data):
    model = residual_model()
    model.compile("adam", "mse")
    model.fit(*data, epochs=2, verbose=0)
    for ffn in ki.find_ffns(model):
        assert ffn.width == ffn.hidden_dim
        assert not to_numpy(ffn.layer.importance()).any()  # and keeps no score


def test_it_trains_as_the_plain_layer_does(data):
    """The taps change no gradient: the same weights after the same steps."""
    prunable = residual_model()
    plain = ki.compact(prunable)
    for model in (prunable, plain):
        model.compile(keras.optimizers.Adam(0.01), "mse")
    for _ in range(3):
        losses = [m.train_on_batch(*data) for m in (prunable, plain)]
        np.testing.assert_allclose(*losses, rtol=1e-6)
    for ffn in ki.find_ffns(prunable):
        other = plain.get_layer(ffn.layer.name)
        for name in ("up_kernel", "gate_kernel", "down_kernel"):
            kernel, same = getattr(ffn.layer, name), getattr(other, name)
            np.testing.assert_allclose(to_numpy(kernel), to_numpy(same), atol=1e-6)


def test_inference_uses_the_mask_of_the_next_step(data):
    x, y = data
    model = residual_model((16,))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    (ffn,) = ki.find_ffns(model)
    start_pruning(model, 4, 0, 5)
    for _ in range(6):
        loss_before_the_step = model.evaluate(x, y, batch_size=64, verbose=0)
        loss_of_the_step = model.train_on_batch(x, y)
        np.testing.assert_allclose(loss_before_the_step, loss_of_the_step, rtol=1e-5)
    assert ffn.width == 4


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_half_precision_prunes_to_the_target(data, policy):
    x, y = data
    model = residual_model((16,), dtype=policy)
    optimizer = keras.optimizers.Adam(0.01)
    if policy == "mixed_float16":
        # So high that the first steps overflow and are skipped.
        optimizer = keras.optimizers.LossScaleOptimizer(
            optimizer, initial_scale=2.0**60
        )
    model.compile(optimizer, "mse")
    (ffn,) = ki.find_ffns(model)
    prune = start_pruning(model, 4, 2, 4)
    for _ in range(70 if policy == "mixed_float16" else 8):
        model.train_on_batch(x, y)
        assert np.isfinite(to_numpy(ffn.scores)).all()
        assert prune._session.pruner.steps == int(model.optimizer.iterations)
    assert ffn.width == 4
    assert ffn.scores.dtype == ffn.mask.dtype == "float32"


def test_saved_in_mid_pruning_and_loaded(data, tmp_path):
    x, y = data
    model = residual_model()
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=6, compact="off")
    model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[prune])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for old, new in zip(ki.find_ffns(model), ki.find_ffns(loaded), strict=True):
        np.testing.assert_array_equal(to_numpy(old.mask), to_numpy(new.mask))
        np.testing.assert_array_equal(to_numpy(old.scores), to_numpy(new.scores))
        assert new.width == 4
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), loaded.predict(x, verbose=0)
    )
    np.testing.assert_allclose(
        model.train_on_batch(x, y), loaded.train_on_batch(x, y), rtol=1e-6
    )


def test_rematerialization_does_not_count_twice(data):
    # Without XLA, Keras on TensorFlow may recompute with weights that are updated
    # already: a stock layer's gradients are then off too.
    jit = keras.backend.backend() == "tensorflow" or "auto"
    with keras.RematScope(mode="full"):
        ffn = ki.PrunableGatedFFN(16)
    inputs = keras.Input((5, 8))
    head = keras.layers.Dense(1, use_bias=False)
    model = keras.Model(inputs, head(inputs + ffn(inputs)))
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    plain = residual_model((16,))
    plain.set_weights(model.get_weights())
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    for m in (model, plain):
        start_pruning(m, 4, 1, 4)
    for _ in range(6):
        np.testing.assert_allclose(
            model.train_on_batch(*data), plain.train_on_batch(*data), rtol=1e-5
        )
    (other,) = ki.find_ffns(plain)
    assert ffn.width == 4
    np.testing.assert_array_equal(to_numpy(ffn.mask), to_numpy(other.mask))
    np.testing.assert_allclose(
        to_numpy(ffn.scores), to_numpy(other.scores), rtol=1e-4, atol=1e-8
    )


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras has none on torch"
)
def test_several_steps_an_execution(data):
    x, y = data
    masks = []
    for steps in (1, 4):
        keras.utils.set_random_seed(0)
        model = residual_model((16,))
        model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=steps)
        prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=5, compact="off")
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[prune])
        (ffn,) = ki.find_ffns(model)
        assert int(model.optimizer.iterations) == 8 and ffn.width == 4
        masks.append(to_numpy(ffn.mask))
        # Compacted between two executions of a second epoch.
        model.fit(
            x,
            y,
            batch_size=8,
            verbose=0,
            callbacks=[ki.IdeaPruneCallback(3, begin_step=9, prune_steps=2)],
        )
        assert ffn.hidden_dim == ffn.width == 3
    np.testing.assert_array_equal(*masks)


def test_gradient_accumulation_counts_optimizer_steps(data):
    x, y = data
    model = residual_model((16,))
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(4, begin_step=1, prune_steps=2)
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[prune])
    (ffn,) = ki.find_ffns(model)
    assert ffn.hidden_dim == ffn.width == 4
    assert history.history["width"] == [4.0, 4.0]
    assert int(model.optimizer.iterations) == 8


def test_layer_compacts_to_its_living_neurons(data):
    layer = ki.PrunableGatedFFN(16, use_bias=True, name="ffn")
    x = data[0]
    layer(x)
    for bias in (layer.up_bias, layer.gate_bias, layer.down_bias):
        bias.assign(np.random.default_rng(0).normal(size=bias.shape))
    layer.mask.assign(np.arange(16) % 3 == 0)
    narrow = layer.compact()
    assert type(narrow) is ki.GatedFFN and narrow.hidden_dim == layer.width == 6
    assert len(narrow.weights) == 6
    np.testing.assert_allclose(to_numpy(narrow(x)), to_numpy(layer(x)), atol=1e-5)
    assert layer.hidden_dim == 16


def over_all(x):
    return x / (1 + keras.ops.max(keras.ops.abs(x), axis=-1, keepdims=True))


@pytest.mark.parametrize("activation", ["softmax", over_all])
@pytest.mark.parametrize("layer", [ki.PrunableFFN, ki.PrunableGatedFFN])
def test_an_activation_over_the_neurons_is_refused(layer, activation):
    """Fewer neurons would have another softmax."""
    with pytest.raises(ValueError, match=r"each neuron alone.*(softmax|over_all)"):
        layer(8, activation=activation)


@pytest.mark.parametrize("ffn", [ki.UngatedFFN, ki.GatedFFN])
def test_a_plain_layer_with_such_an_activation_is_left_out(ffn):
    layers = [ffn(8, "softmax", name="ffn"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    assert ki.find_ffns(model) == []
    told = ki.explain(model).left_out
    assert "activation softmax does not act" in told[model.layers[0].path]
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="activation softmax does not act"):
        prune = ki.IdeaPruneCallback(4, begin_step=1, prune_steps=1)
        model.fit(np.ones((8, 4)), np.ones((8, 2)), callbacks=[prune], verbose=0)
