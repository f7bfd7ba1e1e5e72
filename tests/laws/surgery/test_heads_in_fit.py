"""Key/value heads pruned in `fit`, against Algorithm 1 in NumPy, float64.

Here heads are found in the weights by hand: H query heads over F key/value heads, of
which head k has the query heads k H / F to (k + 1) H / F - 1.
"""

import shutil

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.algorithm_reference import kept
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm
from tests.support.recording_sgd import RecordingSGD, StepRecord

RATE, DECAY, BEGIN, STEPS, TOTAL, BATCH = 0.01, 0.4, 1, 6, 9, 4
TARGETS = {"neurons": 0.5, "kv_groups": 0.5}
FEATURES = 8


def two_attentions(names=("grouped", "single")):
    """Grouped queries without biases, then a head for each key, with them."""
    inputs = x = keras.Input((5, FEATURES))
    for name in names:
        if name == "grouped":
            layer = keras.layers.GroupQueryAttention(4, 8, 4, use_bias=False, name=name)
        else:
            layer = keras.layers.MultiHeadAttention(4, 6, name=name)
        x = keras.layers.Add()([x, layer(x, x)])
        hidden = keras.layers.Dense(12, activation="gelu", name=f"{name}_up")(x)
        hidden = keras.layers.Dense(FEATURES, name=f"{name}_down")(hidden)
        x = keras.layers.Add()([x, hidden])
    return keras.Model(inputs, keras.layers.Dense(2, name="out")(x))


def grouped():
    return two_attentions(["grouped"])


def own_decoder():
    """This package's decoder, of Dense layers whose columns are heads side by side."""
    config = ki.models.DecoderConfig(
        vocabulary_size=16,
        model_dim=16,
        num_layers=1,
        num_heads=4,
        num_key_value_heads=2,
        hidden_dim=12,
        sequence_length=5,
    )
    return ki.models.decoder(config)


def trained(make, compact, callbacks=(), epochs=1, optimizer=RecordingSGD, **arguments):
    keras.utils.set_random_seed(0)
    model = make()
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(to_numpy(variable) + 0.1 * rng.normal(size=variable.shape))
    shape = (TOTAL * BATCH, 5)
    x = rng.integers(0, 16, shape)
    if make is not own_decoder:
        x = rng.normal(size=(*shape, FEATURES)).astype("float32")
    y = rng.normal(size=(*shape, model.output.shape[-1])).astype("float32")
    model.compile(optimizer(RATE), "mse")
    arguments = arguments or {"targets": TARGETS}
    prune = ki.IdeaPruneCallback(None, BEGIN, STEPS, compact=compact, **arguments)
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "epochs": epochs}
    history = model.fit(x, y, callbacks=[prune, *callbacks], **fit).history
    return model, x, history


def places(kernel, head, heads, axis):
    """The index of one key/value head in an array, by hand."""
    each = kernel.shape[axis] // heads
    return (slice(None),) * axis + (slice(head * each, (head + 1) * each),)


@pytest.mark.parametrize("make", [two_attentions, own_decoder])
def test_equals_algorithm_1_in_float64(make):
    record = StepRecord("kv_groups")
    model, _, history = trained(make, "off", [record])
    assert history["kv_groups"][-1] == (2 if make is two_attentions else 1)
    index = {v.path: i for i, v in enumerate(model.trainable_variables)}
    groups = ki.find_groups(model, ["kv_groups"])
    assert [g.full_dim for g in groups] == ([4, 4] if make is two_attentions else [2])
    scores = [0.0] * len(groups)
    alive = [np.ones(group.full_dim, bool) for group in groups]
    for t in range(1, TOTAL + 1):
        weights, gradients = (
            [np.asarray(v, "float64") for v in seen[t - 1]]
            for seen in (record.weights, record.gradients)
        )
        for i, group in enumerate(groups):
            full = group.full_dim
            held = {
                path.removeprefix(f"{group.name}/"): index[path]
                for path in index
                if path.startswith(f"{group.name}/")
            }
            axes = {}  # place of an array -> the axis of its heads, whether it counts
            order = ("query", "key", "value", "output")
            rank = {p: [name in p for name in order].index(True) for p in held}
            for path, place in sorted(held.items(), key=lambda each: rank[each[0]]):
                reads = "output" in path
                if path.endswith("kernel"):
                    axes[place] = (0 if reads else 1), True
                elif not reads:
                    axes[place] = 0, False
            newest = [
                [
                    np.abs(weights[p] * gradients[p])[places(weights[p], k, full, a)]
                    for k in range(full)
                ]
                for p, (a, counts) in axes.items()
                if counts
            ]
            assert len(newest) == 4
            newest = np.array([[part.mean() for part in each] for each in newest])
            scores[i] = (1 - DECAY) * newest + DECAY * scores[i]
            importance = np.where(alive[i], np.max(scores[i], 0), -np.inf)
            width = kept(t, full, full // 2, BEGIN, STEPS)
            alive[i] = np.isin(np.arange(full), np.argsort(-importance)[:width])
            found, mask = record.seen[t - 1][i]
            np.testing.assert_allclose(found, scores[i], rtol=2e-5, atol=1e-9)
            np.testing.assert_array_equal(mask > 0, alive[i])
            for place, (axis, _) in axes.items():
                for k in range(full):
                    at = places(weights[place], k, full, axis)
                    expected = weights[place] - RATE * gradients[place]
                    value = expected[at] * alive[i][k]
                    np.testing.assert_allclose(
                        record.weights[t][place][at], value, rtol=2.4e-7, atol=2e-7
                    )


@pytest.mark.parametrize("compact", ["end", "progressive"])
def test_narrow_equals_masked(compact):
    (masked, x, history), (narrow, _, narrow_history) = (
        trained(grouped, way, epochs=2, optimizer=keras.optimizers.Adam)
        for way in ("off", compact)
    )
    counts = [group.hidden_dim for group in ki.find_groups(narrow)]
    assert counts == [6, 2]
    assert [group.hidden_dim for group in ki.find_groups(masked)] == [12, 4]
    np.testing.assert_allclose(history["loss"], narrow_history["loss"], rtol=1e-5)
    outputs = (to_numpy(model(x[:4])) for model in (masked, narrow))
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Adafactor", "Lion", "Muon", "RMSprop"])
def test_slots_of_three_axes_follow(name):
    """Each slot is of the narrow shape that the same optimizer gives a narrow model."""
    narrow, *_ = trained(grouped, "end", optimizer=getattr(keras.optimizers, name))
    fresh = keras.models.clone_model(narrow)
    optimizer = type(narrow.optimizer)(RATE)
    optimizer.build(fresh.trainable_variables)
    shapes = [
        [tuple(v.shape) for v in each.variables]
        for each in (narrow.optimizer, optimizer)
    ]
    assert shapes[0] == shapes[1]


def test_who_only_looks_at_heads_makes_no_state():
    model = two_attentions()
    ki.compact(model)
    groups = ki.find_groups(model)
    assert [group.width for group in groups] == [12, 12, 4, 4]
    assert [group.held_state for group in groups] == [None] * 4


def test_a_copy_and_a_file_have_the_heads_that_stay(tmp_path):
    masked, x, _ = trained(two_attentions, "off", optimizer=keras.optimizers.SGD)
    narrow = ki.compact(masked)
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    grouped = loaded.get_layer("grouped").get_config()
    assert (grouped["num_query_heads"], grouped["num_key_value_heads"]) == (4, 2)
    assert loaded.get_layer("single").get_config()["num_heads"] == 2
    first, *others = (to_numpy(model(x[:4])) for model in (masked, narrow, loaded))
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [2, 5, 8])
def test_a_run_goes_on_from_its_checkpoint(step, tmp_path):
    """In the middle of pruning, and after the model became narrower."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(TOTAL * BATCH, 5, FEATURES)).astype("float32")
    y = rng.normal(size=(TOTAL * BATCH, 5, 2)).astype("float32")
    whole = goes_on(x, y, 0, [ki.Checkpoint(tmp_path / "run", keep=99)])
    saved = next((tmp_path / "run").glob(f"checkpoint-{step:06}-*"))
    shutil.copytree(saved, tmp_path / "one" / saved.name)
    again = goes_on(x, y, step, [], ki.Checkpoint(tmp_path / "one"))
    assert [group.hidden_dim for group in ki.find_groups(again)] == [6, 6, 2, 2]
    for one, other in zip(whole.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def goes_on(x, y, first, callbacks, saved=None):
    """Trains one step an epoch, from an epoch on."""
    keras.utils.set_random_seed(first)
    model = two_attentions()
    model.compile(keras.optimizers.Adam(RATE), "mse")
    if saved is not None:
        assert saved.restore(model) == first
    prune = ki.IdeaPruneCallback(None, BEGIN, STEPS, targets=TARGETS)
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "steps_per_epoch": 1}
    fit |= {"epochs": TOTAL, "initial_epoch": first}
    model.fit(x[:BATCH], y[:BATCH], callbacks=[prune, *callbacks], **fit)
    return model


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"targets": {"heads": 2}}, "`targets` must be one of"),
        ({"targets": {"kv_groups": 0}}, r"`targets\['kv_groups'\]` must be .* >= 1"),
        ({"targets": {}}, "`targets` must be a dict such as"),
        ({"targets": {"neurons": 2}, "target_dim": 2}, "Give one of `target_dim` and"),
        ({"targets": {"neurons": 2}, "target_bytes": 9}, "Give one of `targets` and"),
        ({"target_dim": 3, "kinds": ["kv_groups"]}, "`kinds` says what a budget may"),
        ({"target_bytes": 9, "kinds": ["heads"]}, "`kinds` must list some of"),
        ({"target_bytes": 9, "kinds": [["neurons"]]}, "`kinds` must list some of"),
        ({"target_bytes": 9, "kinds": 2}, "`kinds` must list some of"),
    ],
)
def test_what_is_refused_at_once(arguments, words):
    with pytest.raises(ValueError, match=words):
        ki.IdeaPruneCallback(begin_step=1, prune_steps=2, **arguments)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"targets": {"kv_groups": 5}}, r"which keeps 5 key/value heads, .* has 4"),
        ({"targets": TARGETS, "method": "activation"}, "grouped"),
        ({"target_parameters": 10, "kinds": ["kv_groups"]}, "cannot be met by pruning"),
    ],
)
def test_what_is_refused_when_fit_begins(arguments, words):
    with pytest.raises(ValueError, match=words):
        trained(two_attentions, "end", **arguments)


def test_a_jump_of_heads_is_told_as_one():
    model = two_attentions(["grouped"])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(24, 5, FEATURES)).astype("float32")
    prune = ki.IdeaPruneCallback(begin_step=1, prune_steps=2, targets={"kv_groups": 2})
    model.fit(x, x[..., :2], epochs=1, batch_size=8, verbose=0)
    match = "drops immediately: .* from 4 to 2 key/value heads"
    with pytest.warns(UserWarning, match=match):
        model.fit(x, x[..., :2], batch_size=8, callbacks=[prune], verbose=0)


@pytest.mark.parametrize("kinds", [("kv_groups",), ("neurons", "kv_groups")])
def test_a_budget_is_met_by_one_fraction(kinds):
    full = two_attentions().count_params()
    sizes = {}
    for budget in (full - 1, full * 3 // 4):
        arguments = {"target_parameters": budget, "kinds": kinds}
        model, *_ = trained(two_attentions, "end", **arguments)
        assert model.count_params() <= budget
        sizes[budget] = [group.hidden_dim for group in ki.find_groups(model)]
    *neurons, grouped, single = sizes[full - 1]
    # 11 of 12 neurons, and as nearly the same fraction of 4 heads: all.
    expected = ([12, 12], 3) if kinds == ("kv_groups",) else ([11, 11], 4)
    assert (neurons, grouped, single) == (*expected, expected[1])
    assert sum(sizes[full * 3 // 4]) < sum(sizes[full - 1])


def test_heads_whose_scores_are_looked_at_are_refused():
    inputs = keras.Input((5, FEATURES))
    layer = keras.layers.MultiHeadAttention(2, 4, name="looked_at")
    y, scores = layer(inputs, inputs, return_attention_scores=True)
    out = keras.layers.Dense(1)(keras.layers.Flatten()(scores))
    model = keras.Model(inputs, [y, out])
    model.compile("sgd", ["mse", "mse"])
    prune = ki.IdeaPruneCallback(begin_step=1, prune_steps=2, targets={"kv_groups": 1})
    x = np.random.default_rng(0).normal(size=(16, 5, FEATURES)).astype("float32")
    with pytest.raises(ValueError, match="looked_at do not act each on its own"):
        model.fit(x, [x, x[:, :1, 0]], batch_size=4, callbacks=[prune], verbose=0)


def test_heads_are_told_of():
    explained = ki.explain(two_attentions())
    assert list(explained.heads.values()) == [4, 4]
    assert str(explained).count("4 key/value heads") == 2
    told = " ".join(explained.left_out)
    assert not any(part in told for part in ("query", "key", "value"))


def test_heads_that_stay_are_told_of():
    """A Llama 3 derives the size of a head from how many there are."""
    explained = ki.explain(tiny_lm("llama3").backbone)
    assert not explained.heads
    (why, *_) = [w for path, w in explained.left_out.items() if "attention" in path]
    assert "cannot say how wide a head is" in why
