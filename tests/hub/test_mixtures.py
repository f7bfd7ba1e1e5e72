"""The experts of mixtures: ranked each by itself, cut each where it stands.

`test_hub_contract` and `test_hub_algorithm` hold what they share with other families.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.keras_private.optimizer_slots import slots_of
from keras_idea.layers.cut import Cut
from tests import reference
from tests.helpers import start_pruning, to_numpy
from tests.hub.test_hub_algorithm import EPSILON, LOSS, Gradients
from tests.hub.test_hub_contract import sliced
from tests.hub_models import FULL, batch, tiny_lm

BEGIN, STEPS, TARGET, TOTAL, SIZE = 2, 6, 10, 10, 2
# With six experts, one of which a token goes to, some get none in a step of 16 tokens.
FEW = {"num_experts": 6, "top_k": 1}
FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


def banks(name, model):
    """Of each FFN a function of all trainable weights: its experts' (F, D) matrices.

    Written from the forward passes of KerasHub: the activated matrix, the linear one,
    the one back, then biases, as views.
    """
    places = {id(v): i for i, v in enumerate(model.trainable_variables)}

    def experts(bank, up, down, packing):
        first, last = places[id(getattr(bank, up))], places[id(getattr(bank, down))]
        bias = places.get(id(getattr(bank, f"{up}_bias", None)))
        parts = [np.s_[:FULL], np.s_[FULL:]]
        if packing == "pairs":
            parts = [np.s_[::2], np.s_[1::2]]

        def views(weights):
            found = []
            for own, back in zip(weights[first], weights[last], strict=True):
                found.append([*(own[:, part].T for part in parts), back])
            if bias is not None:
                for expert, own in zip(found, weights[bias], strict=True):
                    expert += [own[part][:, None] for part in parts]
            return found

        return views

    def dense(mlp):
        names = ("gate", "intermediate", "output")
        layers = [getattr(mlp, f"_feedforward_{name}_dense") for name in names]
        up, gate, down = (places[id(layer.kernel)] for layer in layers)
        return lambda weights: [[weights[up].T, weights[gate].T, weights[down]]]

    found = []
    for block in model.backbone.transformer_layers:
        if name == "gpt oss":
            bank = block.sparse_moe_block.experts
            found.append(experts(bank, "gate_up_proj", "down_proj", "pairs"))
            continue
        names = ("_expert_feedforward_gate_dense", "_expert_feedforward_output_dense")
        found.append(experts(block.mlp.expert_bank, *names, "halves"))
        found.append(dense(block.mlp.shared_expert_dense))
    return found


def algorithm_1(twin, found, batches, optimizer, decay=0.4):
    """Yields (weights, scores, masks, unseen, loss) after every step."""
    weights = [to_numpy(v).astype("float64") for v in twin.variables]
    scores = [[np.zeros((3, FULL)) for _ in views(weights)] for views in found]
    masks = [[np.ones(FULL) for _ in views(weights)] for views in found]
    for t, (x, y) in enumerate(batches, start=1):
        grads, loss = twin.at(weights, x, y)
        newest = [np.abs(g * w) for g, w in zip(grads, weights, strict=True)]
        weights = [
            optimizer.step(i, w, g, t)
            for i, (w, g) in enumerate(zip(weights, grads, strict=True))
        ]
        unseen = set()
        for i, views in enumerate(found):
            for e, (up, gate, down, *_) in enumerate(views(newest)):
                rows = np.stack([matrix.mean(1) for matrix in (up, gate, down)])
                if rows.any():
                    scores[i][e] = (1 - decay) * rows + decay * scores[i][e]
                else:
                    unseen.add((i, e))
                best = np.argsort(-scores[i][e].max(axis=0), kind="stable")
                best = [k for k in best if masks[i][e][k]]
                keep = reference.kept(t, FULL, TARGET, BEGIN, STEPS)
                masks[i][e] = np.isin(np.arange(FULL), best[:keep]).astype("float64")
            for expert, mask in zip(views(weights), masks[i], strict=True):
                for matrix in expert:
                    matrix *= mask[:, None]
        yield weights, scores, masks, unseen, loss


@pytest.mark.parametrize("name, rule", [("qwen moe", "adamw"), ("gpt oss", "sgd")])
def test_equals_algorithm_1(name, rule):
    # Tied: see `language_model` of test_hub_algorithm.
    arguments = {**FEW, "tie_word_embeddings": True} if rule == "adamw" else FEW
    model = ki.make_prunable(tiny_lm(name, **arguments))
    ours, theirs = keras.optimizers.SGD(0.05), reference.SGD(0.05)
    if rule == "adamw":
        ours = keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=EPSILON)
        theirs = reference.AdamW(0.01, decay=0.01, epsilon=EPSILON)
    model.compile(ours, LOSS, weighted_metrics=None)
    ffns = ki.find_ffns(model)
    start_pruning(model, TARGET, BEGIN, STEPS)
    twin = Gradients(tiny_lm(name, **arguments))
    found = banks(name, twin.model)
    x, y = batch(model, np.random.default_rng(1), TOTAL * SIZE)
    cuts = [slice(i * SIZE, (i + 1) * SIZE) for i in range(TOTAL)]
    batches = [({k: v[cut] for k, v in x.items()}, y[cut]) for cut in cuts]
    steps = algorithm_1(twin, found, batches, theirs)
    silent = set()
    for data, (weights, scores, masks, unseen, loss) in zip(
        batches, steps, strict=True
    ):
        assert np.isclose(np.ravel(model.train_on_batch(*data))[0], loss, rtol=1e-5)
        silent |= unseen
        for ffn, score, mask in zip(ffns, scores, masks, strict=True):
            score, mask = np.stack(score, axis=1), np.stack(mask)
            mask = mask.reshape(ffn.mask.shape)
            np.testing.assert_array_equal(to_numpy(ffn.mask), mask)
            np.testing.assert_allclose(
                to_numpy(ffn.scores),
                score.reshape(ffn.scores.shape),
                rtol=1e-4,
                atol=1e-5 * score.max(),
            )
        for variable, weight in zip(model.trainable_variables, weights, strict=True):
            # The rows of dead neurons are zeros, but for what Adam's moments move.
            np.testing.assert_allclose(to_numpy(variable), weight, rtol=0, atol=1e-5)
    assert silent and all(ffn.width == TARGET for ffn in ffns)
    assert all(np.any(score) for rows in scores for score in rows)  # and all were asked


def trained(name, compact="off", optimizer=None, method="sensitivity", callbacks=()):
    """A converted model, pruned in three epochs, and its history."""
    ahead = compact == "progressive" and keras.backend.backend() == "jax"
    model = ki.make_prunable(tiny_lm(name))
    optimizer = optimizer or keras.optimizers.AdamW(0.002, epsilon=1e-4)
    model.compile(optimizer, LOSS, weighted_metrics=None)
    x, y = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(
        TARGET, 2, 6, compact=compact, method=method, compile_ahead=ahead
    )
    history = model.fit(x, y, epochs=3, callbacks=[prune, *callbacks], **FIT)
    return model, history.history, (x, y)


@pytest.mark.parametrize("name", ["qwen moe", "gpt oss"])
def test_narrow_in_the_middle_of_fit(name):
    """Milestones, with steps compiled ahead on jax, change nothing."""
    masked, losses, (x, _) = trained(name)
    narrow, others, _ = trained(name, "progressive")
    np.testing.assert_allclose(others["loss"], losses["loss"], rtol=0, atol=1e-5)
    for ffn, other in zip(ki.find_ffns(narrow), ki.find_ffns(masked), strict=True):
        assert ffn.hidden_dim == ffn.width == other.width == TARGET
        np.testing.assert_array_equal(ffn.original_indices, other.kept_neurons())
    found, expected = (m.predict(x, verbose=0) for m in (narrow, masked))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adafactor(0.01),
        lambda: keras.optimizers.Muon(0.01),
        lambda: keras.optimizers.Lion(0.001),
    ],
    ids=["adafactor", "muon", "lion"],
)
@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe"])
def test_slots_follow(name, make):
    """Each of the optimizer's slots is the wide one's, at the neurons kept."""
    model, _, _ = trained(name, optimizer=make())
    narrow = ki.compact(model)
    ffns = ki.find_ffns(model)
    kept = [{id(c.variable): f.kept_neurons() for c in f.cuts()} for f in ffns]
    kept = {key: value for of_ffn in kept for key, value in of_ffn.items()}
    cut = 0
    pairs = [slots_of(m.optimizer) for m in (model, narrow)]
    for (attribute, old), (same, new) in zip(*pairs, strict=True):
        assert attribute == same
        for variable, one, two in zip(model.trainable_variables, old, new, strict=True):
            value = None if one is None else to_numpy(one)
            for axis in range(0 if one is None else len(one.shape)):
                if one.shape[axis] != two.shape[axis]:
                    value = sliced(value, kept[id(variable)], axis, "halves")
                    cut += 1
            assert two is None or np.array_equal(to_numpy(two), value)
    assert cut >= 4


def test_numbers_of_all_experts_together_are_refused():
    """Adafactor's, of a bias: (E, 2 F) becomes E numbers and 2 F."""
    with pytest.raises(ValueError, match="keeps one number for the neurons of all"):
        trained("gpt oss", optimizer=keras.optimizers.Adafactor(0.01), compact="end")


class StopAfter(keras.callbacks.Callback):
    """Ends the first part of a run at the end of its first epoch."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.parts == 0


def test_a_run_goes_on(tmp_path):
    """A checkpoint of experts that are narrow already, and scores of all of them."""
    whole, _, (x, y) = trained("gpt oss", "progressive")
    for first in (0, 1):
        prune = ki.IdeaPruneCallback(TARGET, 2, 6, compact="progressive")
        saved, stop = ki.Checkpoint(tmp_path), StopAfter(first)
        model = ki.make_prunable(tiny_lm("gpt oss"))
        model.compile(keras.optimizers.AdamW(0.002, epsilon=1e-4), LOSS)
        assert saved.restore(model) == first
        callbacks = [prune, saved, stop]
        model.fit(x, y, epochs=3, initial_epoch=first, callbacks=callbacks, **FIT)
    for one, two in zip(whole.variables, model.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))


def test_random_keeps_as_many_of_each_expert():
    model, _, _ = trained("mixtral", method="random")
    kept = [ffn.kept_neurons() for ffn in ki.find_ffns(model)]
    assert {k.shape for k in kept} == {(4, TARGET)}
    assert len({tuple(row) for k in kept for row in k}) == 8


def test_up_is_the_activated_matrix_and_gate_the_linear_one():
    """The linear half doubled, down halved: the same. The activated one: another."""
    model = ki.make_prunable(tiny_lm("qwen3 moe", mlp_only_layers=[]))
    x, _ = batch(model, np.random.default_rng(0), 4)
    before = to_numpy(model(x))
    for half, same in ((1, True), (0, False)):
        for ffn in ki.find_ffns(model):
            first, down = ffn.kernels
            value = to_numpy(first)
            value[..., half * FULL : (half + 1) * FULL] *= 2.0
            first.assign(value)
            down.assign(to_numpy(down) / 2.0)
        alike = np.allclose(to_numpy(model(x)), before, rtol=0, atol=1e-5)
        assert alike == same


def test_watched(tmp_path):
    """Monitor, and readings of neurons whose experts were narrowed."""
    pytest.importorskip("tensorboardX")
    watch = ki.Monitor(tmp_path, neurons_every=2, sequence_length=8)
    model, history, _ = trained("mixtral", "progressive", callbacks=[watch])
    assert history["width"][-1] == TARGET
    ffn = ki.find_ffns(model)[0]
    values = np.arange(4 * TARGET, dtype="float32").reshape(4, TARGET)
    every = ffn.by_first_number(values)
    assert every.shape == (4, FULL) and np.isnan(every).sum() == 4 * (FULL - TARGET)
    index = ffn.original_indices
    np.testing.assert_array_equal(np.take_along_axis(every, index, 1), values)


def test_an_expert_that_no_token_comes_to():
    model = ki.make_prunable(tiny_lm("gpt oss"))
    for block in model.backbone.transformer_layers:
        router = block.sparse_moe_block.router.router_dense.bias
        router.assign(to_numpy(router) - [0.0, 0.0, 1e3, 0.0])
    model.compile(keras.optimizers.SGD(0.01), LOSS, weighted_metrics=None)
    x, y = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(TARGET, 1, 3)
    with pytest.warns(UserWarning, match=r"No token has come to experts \[2\] of"):
        model.fit(x, y, callbacks=[prune], **FIT)
    kept = ki.find_ffns(model)[0].original_indices
    assert kept[2].tolist() == list(range(TARGET)) != kept[0].tolist()


class TestRefused:
    def test_the_largest_weight_of_a_row(self):
        model = tiny_lm("mixtral")
        with pytest.raises(ValueError, match="must be 'mean' for the experts of Mix"):
            ki.make_prunable(model, row_reduce="max")
        assert ki.find_ffns(model) == []

    @pytest.mark.parametrize("method", ["learned_mask", "activation"])
    def test_methods_that_read_the_hidden_activations(self, method):
        with pytest.raises(ValueError, match="needs the hidden activations of"):
            trained("mixtral", method=method)

    def test_experts_of_unlike_widths(self):
        model = ki.make_prunable(tiny_lm("mixtral"))
        mask = np.ones((4, FULL), "float32")
        mask[1, :3] = 0.0
        ki.find_ffns(model)[0].mask.assign(mask)
        with pytest.raises(ValueError, match="have .24, 21, 24, 24. neurons alive"):
            ki.compact(model)

    def test_a_file_of_another_width(self, tmp_path):
        narrow, _, _ = trained("gpt oss", "end")
        narrow.save_weights(tmp_path / "narrow.weights.h5")
        wide = ki.make_prunable(tiny_lm("gpt oss"))
        with pytest.raises(ValueError, match="holds 10 neurons of .* which has 24"):
            wide.load_weights(tmp_path / "narrow.weights.h5")


@pytest.mark.parametrize("packing", ["", "halves", "pairs"])
@pytest.mark.parametrize("grouped", [False, True])
def test_cuts(packing, grouped):
    """Of a kernel, its bias and its rows: taken, spread and split as by hand."""
    rng = np.random.default_rng(3)
    kept = np.array([[0, 2, 3], [1, 2, 5]])[: 2 if grouped else 1]
    shape = (len(kept), 4, 6 * (2 if packing else 1))
    kernel = rng.normal(size=shape).astype("float32")
    places = [[i for j in row for i in _places(j, packing)] for row in kept]
    places = [sorted(row) for row in places]
    taken = np.stack([k[:, at] for k, at in zip(kernel, places, strict=True)])
    mask = rng.integers(0, 2, size=(len(kept), 6)).astype("float32")
    masked = kernel.copy()
    for own, row in zip(masked, mask, strict=True):
        for j, alive in enumerate(row):
            own[:, _places(j, packing)] *= alive
    if not grouped:
        kernel, kept, taken, mask, masked = (
            a[0] for a in (kernel, kept, taken, mask, masked)
        )
    group = 0 if grouped else None
    cut = Cut(keras.Variable(kernel), kernel.ndim - 1, group, packing)
    assert cut.neurons == 6 and not cut.is_bias and cut.shape(3) == taken.shape
    assert cut.weights_axis == kernel.ndim - 2
    np.testing.assert_array_equal(to_numpy(cut.take(kept)), taken)
    spread = to_numpy(cut.spread(keras.ops.convert_to_tensor(mask)))
    np.testing.assert_allclose(kernel * spread, masked)
    rows = to_numpy(cut.variable).mean(cut.weights_axis)
    parts = [to_numpy(part) for part in cut.split(keras.ops.convert_to_tensor(rows))]
    for i, part in enumerate(parts):
        at = [_places(j, packing)[i] for j in range(6)]
        np.testing.assert_array_equal(part, rows[..., at])
    assert len(parts) == cut.matrices


def _places(j, packing):
    return {"": [j], "halves": [j, 6 + j], "pairs": [2 * j, 2 * j + 1]}[packing]
