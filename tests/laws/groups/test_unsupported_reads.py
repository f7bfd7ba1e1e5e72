"""What users wrote that was once pruned wrongly, or refused with the wrong words."""

import random

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea.shapes.samples import loss_of
from tests.support.helpers import to_numpy
from tests.support.older_keras import needs_3_15

WIDTH, TARGET = 16, 4


@pytest.fixture
def xy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype("float32")
    return x, np.tanh(x @ rng.normal(size=(8, 4))).astype("float32")


def fitted(model, xy, optimizer="adam", **options):
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(TARGET, 8, 8, **options)
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    return model.fit(*xy, epochs=4, callbacks=[prune], **fit)


@keras.saving.register_keras_serializable("tests")
class Scaled(layers.Layer):
    """A block that scales by a number that follows from its width, or by a constant."""

    def __init__(self, width=WIDTH, by="nothing", scale=0.25, **kwargs):
        super().__init__(**kwargs)
        self.width, self.by, self.given = width, by, scale
        self.up, self.down = layers.Dense(width, "relu"), layers.Dense(8)
        self.made, self.chance = width**-0.5, random.Random(0)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, self.width))

    def get_config(self):
        own = {"width": self.width, "by": self.by, "scale": self.given}
        return {**super().get_config(), **own}

    def call(self, x):
        hidden = self.up(x)
        factors = {
            "a shape": lambda: 1 / hidden.shape[-1],
            "ops.shape": lambda: (
                1 / ops.sqrt(ops.cast(ops.shape(hidden)[-1], "float32"))
            ),
            "units": lambda: 1 / self.up.units,
            "an attribute": lambda: self.width**-0.5,
            "a number made": lambda: self.made,
            "a number given": lambda: self.given,
            "chance": lambda: self.chance.random(),
            "nothing": lambda: 1.0,
        }
        return x + self.down(hidden) * factors[self.by]()


def scaled(by):
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(4)(Scaled(by=by)(inputs)))


READ = ["a shape", "ops.shape", "units", "an attribute"]


@pytest.mark.parametrize("by", READ)
def test_a_block_that_computes_with_its_width_is_refused(by, xy):
    for compact in ("end", "progressive"):
        with pytest.raises(ValueError, match=r"computes with their number, 16 \(in"):
            fitted(scaled(by), xy, compact=compact)
    model = scaled(by)
    fitted(model, xy, compact="off")  # nothing is narrowed
    with pytest.raises(ValueError, match="computes with their number"):
        ki.compact(model)
    with pytest.raises(ValueError, match="computes with their number"):
        ki.shrink(scaled(by), {"neurons": TARGET}, xy, method="magnitude")


def test_a_block_that_does_something_else_each_time_is_not_judged(xy):
    model = scaled("chance")
    fitted(model, xy)
    assert ki.find_ffns(model)[0].hidden_dim == TARGET


@pytest.mark.parametrize("by", ["a number given", "nothing"])
def test_a_block_that_does_not_is_narrowed(by, xy, tmp_path, recwarn):
    model = scaled(by)
    fitted(model, xy, compact="off")
    narrow = ki.compact(model)
    narrow.save(tmp_path / "m.keras")
    for other in (narrow, keras.models.load_model(tmp_path / "m.keras")):
        found = other.predict(xy[0], verbose=0)
        np.testing.assert_allclose(found, model.predict(xy[0], verbose=0), atol=1e-6)
    assert not [w for w in recwarn if "makes a number of its width" in str(w.message)]


def test_a_number_that_was_made_of_the_width_is_warned_of(xy):
    """The narrowed layer keeps it, a copy too; one that is loaded makes another."""
    model = scaled("a number made")
    with pytest.warns(UserWarning, match="makes a number of its width"):
        fitted(model, xy)
    narrow = ki.compact(model)
    answers = [m.predict(xy[0], verbose=0) for m in (model, narrow)]
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.parametrize("nested", ["Sequential", "Functional"])
def test_neurons_that_enter_a_nested_model_are_left_out(nested, xy):
    """The shape of what it is called on is fixed in it, and in its config."""
    inputs, hidden = keras.Input((8,)), keras.Input((WIDTH,))
    head = keras.Sequential([hidden, layers.Dense(4)], name="head")
    if nested == "Functional":
        head = keras.Model(hidden, layers.Dense(4)(hidden), name="head")
    up = keras.Sequential([inputs, layers.Dense(WIDTH, "relu")], name="up")
    explained = ki.explain(keras.Model(inputs, head(up(inputs))))
    assert not explained.taken
    entered, left = explained.left_out.values()
    assert entered.startswith("it enters a nested model")
    assert left == "it is an output of the model"
    # What leaves one is not fixed.
    model = keras.Model(inputs, layers.Dense(4)(up(inputs)))
    fitted(model, xy)
    assert up.output_shape == (None, TARGET)
    assert keras.models.clone_model(model).count_params() == model.count_params()


class MeanSquare(keras.regularizers.Regularizer):
    def __call__(self, array):
        return mean_square(array)


def mean_square(array):
    return ops.mean(array**2)


@pytest.mark.parametrize(
    "kind, of, name",
    [
        ("kernel_regularizer", MeanSquare(), "MeanSquare"),
        ("activity_regularizer", mean_square, "mean_square"),
        ("kernel_regularizer", "l2", ""),
        ("activity_regularizer", "l2", ""),
    ],
)
def test_a_regularizer_that_is_a_mean_is_warned_of(kind, of, name, xy, recwarn):
    layer = layers.Dense(WIDTH, "relu", **{kind: of})
    model = keras.Sequential([keras.Input((8,)), layer, layers.Dense(4)])
    fitted(model, xy)
    told = [str(w.message) for w in recwarn if "a mean over neurons" in str(w.message)]
    assert len(told) == bool(name)
    assert all(name in message for message in told)


ON_EACH = """celu elu exponential gelu hard_shrink hard_sigmoid hard_silu hard_tanh
leaky_relu linear log_sigmoid mish relu relu6 selu sigmoid silu soft_shrink softplus
softsign sparse_plus sparse_sigmoid squareplus tanh tanh_shrink swish
hard_swish""".split()
NOT_ON_EACH = ["glu", "log_softmax", "softmax", "sparsemax"]


def test_activations_of_each_number_alone():
    """All of Keras's, sorted by what they do to one number when another changes."""
    one = np.random.default_rng(0).normal(size=(3, 6)).astype("float32")
    other = one.copy()
    other[:, 1:] += 1
    for name in ON_EACH + NOT_ON_EACH:
        function = keras.activations.get(name)
        a, b = (to_numpy(function(ops.convert_to_tensor(v))) for v in (one, other))
        alone = a.shape == one.shape and np.array_equal(a[:, 0], b[:, 0])
        assert alone == (name in ON_EACH), name
        inputs = keras.Input((8,))
        hidden = layers.Dense(WIDTH, name)(inputs)
        explained = ki.explain(keras.Model(inputs, layers.Dense(4)(hidden)))
        assert bool(explained.taken) == alone, name
    known = {n for n in vars(keras.activations) if not n.startswith("_")}
    known -= {"get", "serialize", "deserialize", "threshold"}  # it has arguments
    assert known == {*ON_EACH, *NOT_ON_EACH}


def test_a_kind_that_the_model_lacks():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16), layers.Dense(4)])
    model.compile("adam", "mse")
    x = np.zeros((8, 8), "float32")
    for kinds in (["kv_groups"], ["neurons", "kv_groups"]):
        prune = ki.IdeaPruneCallback(
            targets=dict.fromkeys(kinds, 0.5), begin_step=0, prune_steps=1
        )
        with pytest.raises(
            ValueError, match="no attention layer whose key/value heads can"
        ):
            model.fit(x, x[:, :4], verbose=0, callbacks=[prune])


def test_heads_whose_scores_are_read_are_refused_everywhere():
    inputs = keras.Input((6, 8))
    attend = layers.MultiHeadAttention(4, 4)
    made, scores = attend(inputs, inputs, return_attention_scores=True)
    of_scores = layers.Dense(8)(ops.mean(scores, axis=1))
    model = keras.Model(inputs, inputs + made + of_scores)
    match = "key/value heads of multi_head_attention.* do not act each on its own"
    with pytest.raises(ValueError, match=match):
        ki.shrink(model, {"kv_groups": 2}, method="magnitude")
    for layer in (attend.query_dense, attend.key_dense, attend.value_dense):
        for variable in layer.weights:
            variable.assign(variable * np.array([1, 1, 0, 0])[:, None])
    kernel = attend.output_dense.kernel
    kernel.assign(kernel * np.array([1, 1, 0, 0])[:, None, None])
    with pytest.raises(ValueError, match=match):
        ki.compact(model)


@pytest.mark.parametrize("method", ["activation", "magnitude"])
def test_a_masked_model_is_shrunk(method, xy):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16), layers.Dense(4)])
    fitted(model, xy, compact="off")
    small = ki.shrink(model, {"neurons": 2}, xy, method=method)
    # As one that was compacted before.
    same = ki.shrink(ki.compact(model), {"neurons": 2}, xy, method=method)
    for one, other in zip(small.variables, same.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


class Looking(layers.Layer):
    """Returns None."""

    def call(self, x):
        self.seen = x.shape


class Looked(keras.Model):
    def __init__(self, at):
        super().__init__()
        self.at, self.up, self.down = (
            at,
            layers.Dense(WIDTH, name="up"),
            layers.Dense(4),
        )
        self.looking = Looking(name="looking")

    def call(self, x):
        hidden = self.up(x)
        made = self.down(hidden)
        self.looking({"neurons": hidden, "outputs": made}[self.at])
        return made


@pytest.mark.parametrize("at", ["neurons", "outputs"])
def test_a_layer_that_returns_none(at, xy):
    model = Looked(at)
    model(xy[0])
    if at == "neurons":
        with pytest.raises(ki.KerasIdeaError, match="Looking 'looking' reads"):
            fitted(model, xy)
        return
    fitted(model, xy)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [TARGET]


class Tied(layers.Layer):
    """Two layers with one kernel: Dense, or convolutions."""

    def __init__(self, make, down):
        super().__init__()
        self.one, self.other = make(name="one"), make(name="other")
        self.down = down

    def build(self, shape):
        self.one.build(shape)
        self.other._kernel, self.other.bias, self.other.built = (
            self.one._kernel,
            None,
            True,
        )
        self.down.build(self.one.compute_output_shape(shape))

    def call(self, x):
        return self.down(self.one(x) + self.other(2.0 * x))


def test_two_layers_that_share_a_kernel(xy):
    def make(name):
        return layers.Dense(WIDTH, "gelu", use_bias=False, name=name)

    def tied():
        keras.utils.set_random_seed(0)
        return keras.Sequential([keras.Input((8,)), Tied(make, layers.Dense(4))])

    masked, narrow = tied(), tied()
    losses = [
        fitted(masked, xy, compact="off").history["loss"],
        fitted(narrow, xy).history["loss"],
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    (ffn,) = ki.find_ffns(narrow)
    assert ffn.hidden_dim == TARGET
    outputs = [to_numpy(model(xy[0])) for model in (masked, narrow)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)


def test_two_convolutions_that_share_a_kernel():
    def make(name):
        return layers.Conv2D(8, 3, use_bias=False, name=name)

    tied = Tied(make, layers.Conv2D(3, 1))
    model = keras.Sequential([keras.Input((6, 6, 2)), tied])
    left_out = ki.explain(model).left_out
    assert "'one' and 'other' share a variable" in left_out.values()


def test_an_operation_that_reads_the_kernel_of_a_convolution():
    inputs = keras.Input((6, 6, 2))
    one = layers.Conv2D(8, 3, use_bias=False, name="one")
    made = layers.Conv2D(3, 1)(one(inputs))
    other = ops.mean(ops.conv(inputs, one.kernel), -1, keepdims=True)
    explained = ki.explain(keras.Model(inputs, made + other))
    assert explained.left_out["one"] == "the operation Conv reads it"


SAMPLES = np.ones((6, 8), "float32")
NO_SAMPLES = {
    "a path": ("text.txt", "`data` must be samples.*'text.txt'"),
    "a function": (lambda: SAMPLES, "an object of type function"),
    "a class": (keras.Sequential, "an object of type type"),
    "lists": (SAMPLES.tolist(), "a list that holds float. Make arrays of it"),
    "(lists, y)": ((SAMPLES.tolist(), SAMPLES), "a list that holds float"),
    "a dict of lists": ({"x": SAMPLES.tolist()}, "a dict that holds float"),
    "None in a list": ([None], "a list that holds NoneType"),
    "a number": (np.float32(3), "a float32 that holds float32"),
    "nothing": ([], "hold no sample"),
    "other columns": (SAMPLES[:, :5], r"inputs of shape \(6, 5\) \(ValueError: .*8"),
    "one sample": (SAMPLES[0], r"cannot be called on `data`.*shape \(8,\)"),
    "a wrong batch": ([SAMPLES[:, :5]], r"inputs of shape \(6, 5\)"),
    "names": ({"y": SAMPLES}, r"cannot be called on `data`.*shape \(6, 8\)"),
    "texts": (np.array(["a", "b"]), r"cannot be called on `data`.*shape \(2,\)"),
}


@pytest.mark.parametrize("data, match", NO_SAMPLES.values(), ids=NO_SAMPLES.keys())
def test_data_that_are_no_samples(data, match):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16), layers.Dense(4)])
    with pytest.raises(ki.KerasIdeaError, match=match):
        ki.shrink(model, {"neurons": 2}, data)
    model.compile("adam", "mse")
    method = ki.methods.Activation(data=data)
    prune = ki.IdeaPruneCallback(2, begin_step=0, prune_steps=1, method=method)
    with pytest.raises(ki.KerasIdeaError):
        model.fit(SAMPLES, SAMPLES[:, :4], verbose=0, callbacks=[prune])


@needs_3_15
def test_data_that_a_loss_cannot_be_of():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16), layers.Dense(4)])
    model.compile("adam", "mse")
    for data in ((SAMPLES[:, :5], SAMPLES[:, :4]), [(SAMPLES[:, :5], SAMPLES[:, :4])]):
        with pytest.raises(ki.KerasIdeaError, match="cannot be called on `data`"):
            loss_of(model, data, 2)
