"""A student and its teacher in one call: `keras_idea.distiller`."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy

NATS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


def model(blocks=2, seed=0, dropout=0.0, size=6, regularizer=None):
    """Features to 5 logits at each of 3 positions."""
    rng = np.random.default_rng(seed)
    x = inputs = keras.Input((3, 4))
    x = keras.layers.Dense(size, name="begin", kernel_regularizer=regularizer)(x)
    for i in range(blocks):
        ffn = [
            keras.layers.Dense(12, "relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(size),
        ]
        x = keras.Sequential(ffn, name=f"block_{i}")(x)
    made = keras.Model(inputs, keras.layers.Dense(5, name="logits")(x))
    for variable in made.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) / 2)
    return made


def data(seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 3, 4)).astype("float32")
    return x, rng.integers(0, 5, (8, 3)), rng.uniform(0, 2, (8, 3)).astype("float32")


def by_hand(made, x):
    """Its logits, by NumPy in float64."""

    def dense(layer, x):
        kernel, bias = (to_numpy(v).astype("float64") for v in layer.variables)
        return x @ kernel + bias

    x = dense(made.get_layer("begin"), x.astype("float64"))
    for layer in made.layers:
        if layer.name.startswith("block"):
            up, _, down = layer.layers
            x = dense(down, np.maximum(dense(up, x), 0.0))
    return dense(made.get_layer("logits"), x)


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("weighted", [True])
def test_the_loss_by_numpy(weighted):
    teacher, student = model(), model(seed=7)
    student.compile("sgd", NATS)
    pair = ki.distiller(teacher, student, temperature=2.0, weight=0.25)
    x, y, weights = data()
    weights = weights if weighted else None
    found = pair.evaluate(x, y, 8, sample_weight=weights, verbose=0, return_dict=True)

    theirs, ours = by_hand(teacher, x), by_hand(student, x)
    w = np.ones((8, 3)) if weights is None else weights.astype("float64")
    labels = -np.take_along_axis(log_softmax(ours), y[..., None], -1)[..., 0]
    p, q = log_softmax(theirs / 2.0), log_softmax(ours / 2.0)
    followed = 4.0 * (w * (np.exp(p) * (p - q)).sum(-1)).mean()
    assert found["student_loss"] == pytest.approx((w * labels).mean(), rel=1e-5)
    assert found["distillation_loss"] == pytest.approx(followed, rel=1e-5)
    total = 0.75 * (w * labels).mean() + 0.25 * followed
    assert found["loss"] == pytest.approx(total, rel=1e-5)


def test_the_likeliest_tokens_alone():
    teacher, student = model(), model(seed=7)
    student.compile("sgd", NATS)
    pair = ki.distiller(teacher, student, weight=1.0, top_k=2)
    x, y, _ = data()
    found = pair.evaluate(x, y, 8, verbose=0, return_dict=True)
    theirs, ours = by_hand(teacher, x), by_hand(student, x)
    places = np.argsort(-theirs, -1)[..., :2]
    p, q = (log_softmax(np.take_along_axis(v, places, -1)) for v in (theirs, ours))
    expected = (np.exp(p) * (p - q)).sum(-1).mean()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16"])
def test_a_float32_teacher_is_not_rounded_to_the_student(policy):
    """Its logits are near 100,000: multiples of 512 in bfloat16, infinite in half."""
    teacher, plain, usual = model(), model(seed=7), keras.config.dtype_policy()
    teacher.layers[-1].bias.assign([1e5, 1e5 + 1, 1e5 + 2, 1e5 - 1, 1e5])
    keras.config.set_dtype_policy(policy)
    try:
        student = model(seed=7)
        student.compile("sgd", NATS)
        pair = ki.distiller(teacher, student, weight=1.0)
        x, y, _ = data()
        found = pair.evaluate(x, y, 8, verbose=0, return_dict=True)["loss"]
        # Nor are the inputs of a student in float32, by the policy of the pair.
        float32 = ki.distiller(teacher, plain)
        np.testing.assert_array_equal(to_numpy(float32(x)), to_numpy(plain(x)))
    finally:
        keras.config.set_dtype_policy(usual)
    theirs, ours = (to_numpy(m(x)) for m in (teacher, student))
    assert theirs.dtype == "float32" and student.compute_dtype == policy[6:]
    p, q = (log_softmax(logits.astype("float64")) for logits in (theirs, ours))
    assert found == pytest.approx((np.exp(p) * (p - q)).sum(-1).mean(), rel=5e-3)


def test_a_copy_that_follows_alone_has_no_gradient():
    teacher, student = model(), model()
    student.compile("sgd", NATS)
    x, y, _ = data()
    pair = ki.distiller(teacher, student, weight=1.0)
    with pytest.raises(ValueError, match="equals its teacher"):
        pair.fit(x, y, epochs=2, callbacks=[ki.IdeaPruneCallback(6, 0, 2)], **FIT)
    prune = ki.IdeaPruneCallback(6, 0, 2, method=ki.methods.Activation(x))
    pair.fit(x, y, epochs=2, callbacks=[prune], **FIT)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(student)} == {6}


def test_a_pair_is_saved_whole(tmp_path):
    teacher, student = model(), model(seed=7)
    x, y, _ = data()
    pair = ki.distiller(teacher, student)
    pair.save(tmp_path / "pair.keras")
    loaded = keras.models.load_model(tmp_path / "pair.keras")
    for made in (pair, loaded):
        made.compile("sgd", NATS)
    before = pair.evaluate(x, y, 8, verbose=0)
    np.testing.assert_allclose(loaded.evaluate(x, y, 8, verbose=0), before, rtol=1e-6)


def test_a_distiller_itself_is_not_compacted():
    loss = keras.distillation.LogitsDistillation()
    pair = keras.distillation.Distiller(model(), model(seed=7), loss)
    with pytest.raises(ValueError, match=r"compact\(distiller.student\)"):
        ki.compact(pair)
