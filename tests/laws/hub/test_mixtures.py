"""The experts of mixtures: ranked each by itself, cut each where it stands.

The laws hold what they share with other families.
"""

import keras
import numpy as np

import keras_idea as ki
from tests.support import algorithm_reference as reference
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_gradients import EPSILON, LOSS, Gradients
from tests.support.hub_models import FULL, batch, tiny_lm
from tests.support.hub_training import used

BEGIN, STEPS, TARGET, TOTAL, SIZE = 2, 6, 10, 10, 2


# With six experts, one of which a token goes to, some get none in a step of 16 tokens.
FEW = {"num_experts": 6, "top_k": 1}


def banks(model):
    """Of each FFN a function of all trainable weights: its experts' (F, D) matrices.

    Written from the forward passes of KerasHub: the activated matrix, the linear one,
    the one back, as views.
    """
    places = {id(v): i for i, v in enumerate(model.trainable_variables)}

    def experts(bank):
        first = places[id(bank._expert_feedforward_gate_dense)]
        last = places[id(bank._expert_feedforward_output_dense)]
        return lambda weights: [
            [own[:, :FULL].T, own[:, FULL:].T, back]
            for own, back in zip(weights[first], weights[last], strict=True)
        ]

    def dense(mlp):
        names = ("gate", "intermediate", "output")
        layers = [getattr(mlp, f"_feedforward_{name}_dense") for name in names]
        up, gate, down = (places[id(layer.kernel)] for layer in layers)
        return lambda weights: [[weights[up].T, weights[gate].T, weights[down]]]

    found = []
    for block in model.backbone.transformer_layers:
        found += experts(block.mlp.expert_bank), dense(block.mlp.shared_expert_dense)
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
            for e, (up, gate, down) in enumerate(views(newest)):
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


def test_equals_algorithm_1():
    # Tied: an embedding that is only looked up has sparse gradients on tensorflow,
    # where Keras's Adam leaves the rows of other tokens alone, momentum or not.
    arguments = {**FEW, "tie_word_embeddings": True}
    model = tiny_lm("qwen moe", **arguments)
    ours = keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=EPSILON)
    theirs = reference.AdamW(0.01, decay=0.01, epsilon=EPSILON)
    model.compile(ours, LOSS, weighted_metrics=None)
    ffns = ki.find_ffns(model)
    start_pruning(model, TARGET, BEGIN, STEPS)
    twin = Gradients(tiny_lm("qwen moe", **arguments))
    found = banks(twin.model)
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
