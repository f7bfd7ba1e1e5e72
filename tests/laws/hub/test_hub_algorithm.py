"""A stock KerasHub model trains by Algorithm 1, step by step.

The gradients come from a twin that nothing prunes: under plain SGD at rate 1024, a
power of two that hides the weights, a step tells its gradient to the last bit but one.
The rest is float64 NumPy, written from the paper.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import algorithm_reference as reference
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_gradients import EPSILON, LOSS, Gradients
from tests.support.hub_models import MODELS, batch, tiny_lm
from tests.support.hub_training import foreign, used

BEGIN, STEPS, TARGET, TOTAL, SIZE = 2, 6, 10, 10, 4
# The activated matrix, the linear one, the one back.
NAMES = {
    "llama3": (
        "_feedforward_gate_dense",
        "_feedforward_intermediate_dense",
        "_feedforward_output_dense",
    ),
    "gemma2": ("gating_ffw", "gating_ffw_2", "ffw_linear"),
}


def language_model(name):
    """Tied: an embedding that is only looked up has sparse gradients on tensorflow,
    where Keras's Adam leaves the rows of other tokens alone, momentum or not.
    """
    tied = {"tie_word_embeddings": True} if name == "llama3" else {}
    return tiny_lm(name, **tied)


def algorithm_1(twin, matrices, batches, optimizer, decay=0.4):
    """Yields (weights, scores, masks, loss) after every step."""
    weights = [to_numpy(v).astype("float64") for v in twin.variables]
    full = weights[matrices[0][2]].shape[0]
    scores = [np.zeros((3, full)) for _ in matrices]
    masks = [np.ones(full) for _ in matrices]
    for t, (x, y) in enumerate(batches, start=1):
        grads, loss = twin.at(weights, x, y)
        newest = [np.abs(g * w) for g, w in zip(grads, weights, strict=True)]
        weights = [
            optimizer.step(i, w, g, t)
            for i, (w, g) in enumerate(zip(weights, grads, strict=True))
        ]
        for i, (up, gate, down) in enumerate(matrices):
            rows = [newest[up].mean(0), newest[gate].mean(0), newest[down].mean(1)]
            scores[i] = (1 - decay) * np.stack(rows) + decay * scores[i]
            best = np.argsort(-scores[i].max(axis=0), kind="stable")
            best = [k for k in best if masks[i][k]]
            keep = reference.kept(t, full, TARGET, BEGIN, STEPS)
            masks[i] = np.isin(np.arange(full), best[:keep]).astype("float64")
            weights[up] = weights[up] * masks[i]
            weights[gate] = weights[gate] * masks[i]
            weights[down] = weights[down] * masks[i][:, None]
        yield weights, scores, masks, loss


@pytest.mark.parametrize("name, optimizer", [("llama3", "adamw"), ("gemma2", "sgd")])
def test_equals_algorithm_1(name, optimizer):
    model = language_model(name)
    if optimizer == "sgd":
        ours, theirs = keras.optimizers.SGD(0.05), reference.SGD(0.05)
    else:
        ours = keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=EPSILON)
        theirs = reference.AdamW(0.01, decay=0.01, epsilon=EPSILON)
    model.compile(ours, LOSS, weighted_metrics=None)
    ffns = ki.find_ffns(model)
    prune = start_pruning(model, TARGET, BEGIN, STEPS)
    twin = Gradients(language_model(name))
    matrices = [
        [twin.places[id(getattr(block, attr).kernel)] for attr in NAMES[name]]
        for block in twin.model.backbone.transformer_layers
    ]
    x, y = batch(model, np.random.default_rng(1), TOTAL * SIZE)
    cuts = [slice(i * SIZE, (i + 1) * SIZE) for i in range(TOTAL)]
    batches = [({k: v[cut] for k, v in x.items()}, y[cut]) for cut in cuts]
    steps = algorithm_1(twin, matrices, batches, theirs)
    for data, (weights, scores, masks, loss) in zip(batches, steps, strict=True):
        assert np.isclose(np.ravel(model.train_on_batch(*data))[0], loss, rtol=1e-5)
        for ffn, score, mask in zip(ffns, scores, masks, strict=True):
            np.testing.assert_array_equal(to_numpy(ffn.mask), mask)
            np.testing.assert_allclose(
                to_numpy(ffn.scores), score, rtol=1e-4, atol=1e-5 * score.max()
            )
        for variable, weight in zip(model.trainable_variables, weights, strict=True):
            np.testing.assert_allclose(to_numpy(variable), weight, rtol=0, atol=1e-5)
        # What is pruned is exactly zero in the model as well.
        for ffn, mask in zip(ffns, masks, strict=True):
            assert all(np.array_equal(part, mask == 1) for part in used(ffn))
    prune.on_train_end()
    assert [ffn.width for ffn in ffns] == [TARGET] * MODELS[name].ffns
    assert foreign(model) == []
