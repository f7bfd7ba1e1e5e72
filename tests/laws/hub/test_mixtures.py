"""The experts of mixtures: ranked each by itself, cut each where it stands.

`test_hub_contract` and `test_hub_algorithm` hold what they share with other families.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.groups.cut import Cut
from tests.support import algorithm_reference as reference
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_gradients import EPSILON, LOSS, Gradients
from tests.support.hub_models import FULL, batch, tiny_lm
from tests.support.hub_training import used

BEGIN, STEPS, TARGET, TOTAL, SIZE = 2, 6, 10, 10, 2


# With six experts, one of which a token goes to, some get none in a step of 16 tokens.
FEW = {"num_experts": 6, "top_k": 1}


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
    model = tiny_lm(name, **arguments)
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
            np.testing.assert_allclose(to_numpy(variable), weight, rtol=0, atol=1e-5)
        for ffn, mask in zip(ffns, masks, strict=True):
            mask = np.stack(mask).reshape(ffn.mask.shape) == 1
            assert all(np.array_equal(part, mask) for part in used(ffn))
    assert silent and all(ffn.width == TARGET for ffn in ffns)
    assert all(np.any(score) for rows in scores for score in rows)  # and all were asked


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
        for j, active in enumerate(row):
            own[:, _places(j, packing)] *= active
    if not grouped:
        kernel, kept, taken, mask, masked = (
            a[0] for a in (kernel, kept, taken, mask, masked)
        )
    group = 0 if grouped else None
    cut = Cut(keras.Variable(kernel), kernel.ndim - 1, group, packing)
    assert cut.neurons == 6 and not cut.is_bias and cut.shape(3) == taken.shape
    assert cut.weights_axes == (kernel.ndim - 2,)
    np.testing.assert_array_equal(to_numpy(cut.take(kept)), taken)
    spread = to_numpy(cut.spread(keras.ops.convert_to_tensor(mask)))
    np.testing.assert_allclose(kernel * spread, masked)
    rows = to_numpy(cut.variable).mean(cut.weights_axes)
    parts = [to_numpy(part) for part in cut.split(keras.ops.convert_to_tensor(rows))]
    for i, part in enumerate(parts):
        at = [_places(j, packing)[i] for j in range(6)]
        np.testing.assert_array_equal(part, rows[..., at])
    assert len(parts) == cut.matrices


def _places(j, packing):
    return {"": [j], "halves": [j, 6 + j], "pairs": [2 * j, 2 * j + 1]}[packing]
