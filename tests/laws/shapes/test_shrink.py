"""A model shrunk in one step: what stays by NumPy, and what the rest then computes."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.block_chains import GROUPS, HEAD, HEADS, WIDTH, Block, chain
from tests.support.helpers import to_numpy


def blocks_of(model):
    return [layer for layer in model.layers if isinstance(layer, Block)]


def passed_through(model, x):
    """What each block is given, and what the last returns."""
    found = [x]
    for block in blocks_of(model):
        found.append(to_numpy(block(found[-1])))
    return found


def weights(model):
    return [to_numpy(variable) for variable in model.variables]


def kept_of(values, count):
    return np.sort(np.argsort(-values, kind="stable")[:count])


class TestWidths:
    def test_neurons_by_activation(self, samples):
        model, (x, _) = chain(1), samples
        before = weights(model)
        block = model.layers[1]
        hidden = to_numpy(block.up(x + to_numpy(block.attention(x, x)))).astype(float)
        kept = kept_of(np.linalg.norm(hidden, axis=1).mean(axis=0), 9)
        small = ki.shrink(model, {"neurons": 9}, samples, batch_size=4)
        new = small.layers[1]
        np.testing.assert_array_equal(new.up.kernel, to_numpy(block.up.kernel)[:, kept])
        np.testing.assert_array_equal(new.up.bias, to_numpy(block.up.bias)[kept])
        np.testing.assert_array_equal(
            new.down.kernel, to_numpy(block.down.kernel)[kept]
        )
        for old, now in zip(before, weights(model), strict=True):
            np.testing.assert_array_equal(old, now)
        assert type(small) is type(model) and small.optimizer is not model.optimizer

    def test_heads_by_activation(self, samples):
        """The L2 norm of the values that a group's query heads read, by NumPy."""
        model, (x, _) = chain(1), samples
        attention = model.layers[1].attention

        def projected(layer):
            kernel, bias = (to_numpy(v).astype(float) for v in layer.weights)
            return np.einsum("btd,dhf->bthf", x.astype(float), kernel) + bias

        q, k, v = (
            projected(getattr(attention, f"_{name}_dense"))
            for name in ("query", "key", "value")
        )
        k, v = (np.repeat(part, HEADS // GROUPS, axis=2) for part in (k, v))
        logits = np.einsum("bqhf,bkhf->bhqk", q, k) / np.sqrt(HEAD)
        share = np.exp(logits - logits.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        read = np.einsum("bhqk,bkhf->bqhf", share, v).reshape(10, 6, GROUPS, -1)
        scores = np.sqrt(np.square(read).sum(axis=(1, 3))).mean(axis=0)
        stay = int(np.argmax(scores))
        small = ki.shrink(model, {"kv_groups": 1}, samples)
        new = small.layers[1].attention
        np.testing.assert_array_equal(
            new._value_dense.kernel,
            to_numpy(attention._value_dense.kernel)[:, stay : stay + 1],
        )
        np.testing.assert_array_equal(
            new._query_dense.kernel,
            to_numpy(attention._query_dense.kernel)[:, 2 * stay : 2 * stay + 2],
        )

    def test_a_budget(self, samples):
        model = chain(2)
        limit = int(0.85 * model.count_params())
        small = ki.shrink(model, None, samples, target_parameters=limit)
        added = 2 * (2 * WIDTH + 1)  # of one more neuron in both blocks
        assert limit - added < small.count_params() <= limit
        kinds = ["neurons", "kv_groups"]
        small = ki.shrink(model, kinds, samples, target_parameters=limit)
        sizes = [group.hidden_dim for group in ki.find_groups(small)]
        assert sizes == [15, 15, 1, 1] and small.count_params() <= limit


@pytest.mark.parametrize("sequential", [False, True])
class TestBlocks:
    def test_those_of_least_influence_go(self, samples, sequential):
        model, (x, _) = chain(4, sequential), samples
        seen = [
            np.reshape(part, (-1, WIDTH)).astype(float)
            for part in passed_through(model, x)
        ]
        influence = [
            1
            - np.mean(
                (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
            )
            for a, b in zip(seen, seen[1:], strict=False)
        ]
        kept = kept_of(np.array(influence), 2)
        small = ki.shrink(model, {"blocks": 2}, samples, batch_size=3)
        names = [block.name for block in blocks_of(small)]
        assert names == [f"block_{i}" for i in kept]
        assert type(small) is type(model)
        y = x
        for i in kept:
            y = blocks_of(model)[i](y)
        expected = to_numpy(model.layers[-1](y))
        np.testing.assert_allclose(to_numpy(small(x)), expected, rtol=0, atol=1e-5)


class TestRefused:
    @pytest.mark.parametrize(
        "targets, arguments, match",
        [
            ({"blocks": 5}, {}, "has 4. Give at most that"),
            ({"features": 8}, {}, r"`targets\['features'\]`"),
            ({"blocks": 2}, {"data": None}, "`data` are needed"),
            (["neurons"], {}, "`targets` must be a dict"),
            ({"features": 8, "neurons": 9}, {"refit": True}, "Cut features in a call"),
            ({"neurons": 2}, {"target_parameters": 99}, "`targets` must list"),
        ],
    )
    def test_what_cannot_be_met(self, samples, targets, arguments, match):
        model = chain()
        with pytest.raises(ValueError, match=match):
            ki.shrink(model, targets, **{"data": samples, **arguments})
