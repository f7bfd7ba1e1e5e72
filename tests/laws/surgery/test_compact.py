"""compact: a new, narrow model that computes, trains and saves as the old one."""

import subprocess
import sys
import warnings
from typing import NamedTuple

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.functional import ffn_parameters
from tests.support.helpers import MODELS, Block, residual_model, start_pruning, to_numpy
from tests.support.older_keras import needs_3_15


def pruned(model, data, steps=6, target=5, optimizer=None, policy=None):
    """The model after a few steps in which every FFN was pruned to `target`."""
    model.compile(optimizer or keras.optimizers.AdamW(0.01), "mse", metrics=["mae"])
    model.predict(data[0][:1], verbose=0)  # builds it
    prune = start_pruning(model, target, 0, steps - 1)
    for _ in range(steps):
        model.train_on_batch(*data)
    prune.on_train_end()
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_parameters_and_next_steps(kind, data):
    model = pruned(MODELS[kind](), data)
    ffns = ki.find_ffns(model)
    assert [ffn.width for ffn in ffns] == [5] * len(ffns)
    before = [to_numpy(variable) for variable in model.variables]
    narrow = ki.compact(model)

    layers = narrow._flatten_layers()
    assert not any(isinstance(layer, ki.PrunableGatedFFN) for layer in layers)
    ours, of_dense = (
        [f for f in ffns if f.masks_itself is own] for own in (True, False)
    )
    plain = [layer for layer in layers if isinstance(layer, ki.GatedFFN)]
    assert [layer.hidden_dim for layer in plain] == [5] * len(ours)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [5] * len(ffns)
    state = sum(ffn.state.count_params() for ffn in ours)
    saved = sum(
        ffn_parameters(8, ffn.hidden_dim, ffn.layer.use_bias)
        - ffn_parameters(8, 5, ffn.layer.use_bias)
        for ffn in ours
    )
    for ffn in of_dense:  # a column and a bias of up (and gate), a row of down
        *entrances, down = (layer.kernel.shape for layer in ffn.layers)
        of_one = sum(shape[0] + 1 for shape in entrances) + down[1]
        saved += of_one * (ffn.hidden_dim - 5)
    assert narrow.count_params() == model.count_params() - state - saved

    x, y = data
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(narrow.predict(x, verbose=0), expected, atol=1e-5)
    for old, now in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(now))  # left as it was

    assert int(narrow.optimizer.iterations) == int(model.optimizer.iterations) == 6
    for _ in range(3):
        np.testing.assert_allclose(
            narrow.train_on_batch(x, y), model.train_on_batch(x, y), rtol=2e-5
        )


@pytest.mark.parametrize("kind", MODELS)
def test_idempotent(kind, data):
    narrow = ki.compact(pruned(MODELS[kind](), data))
    again = ki.compact(narrow)
    assert again is not narrow
    for one, two in zip(narrow.variables, again.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))
    for one, two in zip(
        narrow.optimizer.variables, again.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))


def test_moments_are_the_old_ones_at_the_kept_neurons(data):
    model = pruned(residual_model((16,)), data)
    (ffn,) = ki.find_ffns(model)
    kept = np.flatnonzero(to_numpy(ffn.mask))
    narrow = ki.compact(model)
    layer = narrow.get_layer("ffn_0")
    old, new = model.optimizer, narrow.optimizer
    for slots in ("_momentums", "_velocities"):
        for name, axis in (("up_kernel", 1), ("gate_kernel", 1), ("down_kernel", 0)):
            i = old._get_variable_index(getattr(ffn.layer, name))
            j = new._get_variable_index(getattr(layer, name))
            wide = to_numpy(getattr(old, slots)[i])
            assert np.abs(wide).max() > 0
            np.testing.assert_array_equal(
                to_numpy(getattr(new, slots)[j]), np.take(wide, kept, axis)
            )


def test_bfloat16_within_its_precision(data):
    model = pruned(residual_model((16,), dtype="mixed_bfloat16"), data)
    narrow = ki.compact(model)
    expected = model.predict(data[0], verbose=0)
    difference = np.abs(narrow.predict(data[0], verbose=0) - expected)
    # Dead neurons add exact zeros; what is left is the order of the sums.
    assert difference.max() <= 2**-8 * np.abs(expected).max()


LOAD = """
import sys, numpy as np, keras, keras_idea
model = keras.models.load_model(sys.argv[1])
data = np.load(sys.argv[2])
out = model.predict(data["x"], verbose=0)
assert np.abs(out - data["out"]).max() <= 1e-6, np.abs(out - data["out"]).max()
loss = model.train_on_batch(data["x"], data["y"])[0]
assert np.isclose(loss, data["loss"], rtol=1e-5), (loss, data["loss"])
print([l.hidden_dim for l in model._flatten_layers() if hasattr(l, "hidden_dim")])
"""


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_saves_and_loads_in_a_fresh_process(kind, data, tmp_path):
    narrow = ki.compact(pruned(MODELS[kind](), data))
    narrow.save(tmp_path / "narrow.keras")
    x, y = data
    out = narrow.predict(x, verbose=0)
    loss = narrow.train_on_batch(x, y)[0]
    np.savez(tmp_path / "data.npz", x=x, y=y, out=out, loss=loss)
    command = [sys.executable, "-c", LOAD, "narrow.keras", "data.npz"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ("[5, 5]", "[5]")


# Nothing of ours can be imported in these processes.
STRANGER = "import sys, numpy as np; sys.modules['keras_idea'] = None\n"
AS_KERAS = "import keras; keras.models.load_model('narrow.keras')"
AS_SERVED = """
x = np.load('x.npy')
if sys.argv[1] == 'torch':
    import torch
    out = torch.export.load('narrow.pt2').module()(torch.tensor(x)).detach()
else:
    import tensorflow as tf
    model = tf.saved_model.load('narrow')
    out = model.serve(x)
np.save('out.npy', out.numpy())
"""


@needs_3_15
def test_without_this_package_it_is_served_and_not_loaded(data, tmp_path):
    """What the pages say of the two kinds of files."""
    narrow = ki.compact(pruned(MODELS["functional"](), data))
    narrow.save(tmp_path / "narrow.keras")
    x = data[0][:1]  # an export on torch has the batch it was traced with
    np.save(tmp_path / "x.npy", x)
    backend = keras.backend.backend()
    if backend == "torch":
        narrow.export(tmp_path / "narrow.pt2", format="torch", verbose=False)
    else:
        narrow.export(tmp_path / "narrow", verbose=False)

    def stranger(code):
        command = [sys.executable, "-c", STRANGER + code, backend]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    loaded = stranger(AS_KERAS)
    assert loaded.returncode != 0 and "keras_idea" in loaded.stderr
    served = stranger(AS_SERVED)
    assert served.returncode == 0, served.stderr
    found = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(found, narrow.predict(x, verbose=0), atol=1e-5)


def test_a_shared_layer_stays_one(data):
    ffn = ki.PrunableGatedFFN(16)
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, ffn(ffn(inputs)))
    ffn.mask.assign(np.arange(16) < 6)
    narrow = ki.compact(model)
    assert len([w for w in narrow.weights]) == 3
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0),
        model.predict(data[0], verbose=0),
        atol=1e-5,
    )


def test_an_uncompiled_model_stays_so(data):
    narrow = ki.compact(residual_model())
    assert not narrow.compiled


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_loss_that_is_a_plain_function(kind, data):
    model = MODELS[kind]()
    model.predict(data[0][:1], verbose=0)
    model.compile("sgd", loss=lambda y, p: keras.ops.mean(keras.ops.abs(y - p)))
    narrow = ki.compact(model)
    np.testing.assert_allclose(
        narrow.train_on_batch(*data), model.train_on_batch(*data), rtol=1e-5
    )


def test_frozen_layers_stay_frozen(data):
    model = residual_model()
    model.get_layer("ffn_0").trainable = False
    model.compile("adam", "mse")
    model.train_on_batch(*data)
    narrow = ki.compact(model)
    assert len(narrow.trainable_variables) == 4
    np.testing.assert_allclose(
        narrow.train_on_batch(*data), model.train_on_batch(*data), rtol=1e-5
    )


def test_a_layer_compacts_alone():
    block = Block(16)
    block.build((None, 5, 8))
    block.ffn.build((None, 5, 8))
    block.ffn.mask.assign(np.arange(16) < 7)
    assert type(ki.compact(block.ffn)) is ki.GatedFFN
    assert ki.compact(block.ffn).hidden_dim == 7


class Pair(NamedTuple):
    """Two layers by name."""

    first: keras.layers.Layer
    second: keras.layers.Layer


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class InTuples(keras.Model):
    """Its FFNs are in tuples, which tensorflow wraps."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.plain = (ki.PrunableGatedFFN(8), ki.PrunableGatedFFN(8))
        self.named = Pair(ki.PrunableGatedFFN(8), keras.layers.Dense(8))

    def call(self, inputs):
        hidden = self.plain[1](self.plain[0](inputs))
        return self.named.second(self.named.first(hidden))


def test_held_in_tuples(data):
    model = InTuples()
    model(data[0])
    for ffn in ki.find_ffns(model):
        ffn.mask.assign(np.float32(np.arange(8) < 5))
    narrow = ki.compact(model)
    held = [*narrow.plain, narrow.named.first]
    assert [type(layer) for layer in held] == [ki.GatedFFN] * 3
    assert [layer.hidden_dim for layer in held] == [5] * 3
    expected = to_numpy(model(data[0]))
    within = 1e-6 * np.abs(expected).max()  # other shapes add in another order
    np.testing.assert_allclose(to_numpy(narrow(data[0])), expected, atol=within)


def test_a_model_with_nothing_to_prune_is_told(data):
    inputs = keras.Input((5, 8))
    stock = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    with pytest.warns(UserWarning, match="holds no FFN that can be pruned") as caught:
        ki.compact(stock)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ki.compact(ki.compact(residual_model()))


@pytest.mark.parametrize("ffn", [ki.PrunableGatedFFN, ki.PrunableFFN])
@pytest.mark.parametrize("nested", [False, True])
def test_functions_without_a_config_are_handed_over(ffn, nested, data):
    """A lambda as activation and as initializer, which no config can hold."""
    model = residual_model(
        (16,),
        ffn=ffn,
        activation=lambda x: keras.ops.tanh(x) * 2,
        kernel_initializer=lambda shape, dtype=None: keras.ops.full(shape, 0.1),
    )
    if nested:
        model = keras.Sequential([keras.Input((5, 8)), model])
    (found,) = ki.find_ffns(model)
    found.mask.assign(np.arange(16) % 4 == 0)
    narrow = ki.compact(model)
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0), model.predict(data[0], verbose=0), atol=1e-6
    )


@pytest.mark.parametrize("kind", ["lora", "int8"])
def test_dense_layers_beside_the_ffns_may_have_lora_or_be_quantized(kind, data):
    """Pruned and compacted: the same outputs, the same next step."""
    inputs = keras.Input((5, 8))
    dense = keras.layers.Dense(8, name="beside")
    x = ki.PrunableGatedFFN(16)(dense(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    dense.enable_lora(2) if kind == "lora" else dense.quantize("int8")
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    prune = ki.IdeaPruneCallback(4, 2, 4, compact="off")
    model.fit(*data, batch_size=8, verbose=0, callbacks=[prune])
    narrow = ki.compact(model)
    assert narrow.get_layer("beside").lora_enabled == (kind == "lora")
    assert narrow.get_layer("beside").quantization_mode == (
        "int8" if kind == "int8" else None
    )
    for _ in range(2):
        found, expected = (m.predict(data[0], verbose=0) for m in (narrow, model))
        np.testing.assert_allclose(found, expected, atol=1e-6)
        losses = [m.train_on_batch(*data) for m in (narrow, model)]
        np.testing.assert_allclose(*losses, rtol=1e-5)


def test_after_a_step_by_hand():
    """On jax a model still holds the values of `train_on_batch`, which no copy has."""
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((4,)), dense(6, "relu"), dense(2)])
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((3, 4), "float32"), np.zeros((3, 2), "float32"))
    up, bias, down, last = model.get_weights()
    up[:, 0] = bias[0] = down[0] = 0.0
    model.set_weights([up, bias, down, last])
    expected = [up[:, 1:], bias[1:], down[1:], last]
    for one, other in zip(ki.compact(model).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
