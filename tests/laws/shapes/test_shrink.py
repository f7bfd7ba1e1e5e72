"""A model shrunk in one step: what stays by NumPy, and what the rest then computes."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.block_chains import GROUPS, HEAD, HEADS, WIDTH, Block, chain
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm


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

    def test_by_magnitude_without_data(self):
        model = chain(1)
        block = model.layers[1]
        up, down = (to_numpy(la.kernel).astype(float) for la in (block.up, block.down))
        kept = kept_of(np.square(up).sum(0) + np.square(down).sum(1), 10)
        small = ki.shrink(model, {"neurons": 0.5, "kv_groups": 0.5}, method="magnitude")
        np.testing.assert_array_equal(
            small.layers[1].up.kernel, to_numpy(block.up.kernel)[:, kept]
        )
        sizes = [(g.kind, g.hidden_dim) for g in ki.find_groups(small)]
        assert sizes == [("neurons", 10), ("kv_groups", 1)]

    def test_experts_by_magnitude_and_not_by_activation(self):
        lm = tiny_lm("mixtral")
        data = {name: np.ones((2, 8), "int32") for name in lm.input}
        with pytest.raises(ValueError, match="'activation' needs the hidden activ"):
            ki.shrink(lm, {"neurons": 0.5}, data)
        small = ki.shrink(lm, {"neurons": 0.5}, method="magnitude")
        assert {ffn.hidden_dim for ffn in ki.find_ffns(small)} == {12}


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

    def test_one_after_another_by_the_loss(self, samples, sequential):
        model, (x, y) = chain(4, sequential), samples

        def loss(kept):
            hidden = x
            for i in kept:
                hidden = blocks_of(model)[i](hidden)
            return np.square(to_numpy(model.layers[-1](hidden)) - y).mean()

        kept = [0, 1, 2, 3]
        while len(kept) > 2:
            kept.remove(min(kept, key=lambda i: loss([j for j in kept if j != i])))
        small = ki.shrink(model, {"blocks": 2}, samples, blocks_by="loss", batch_size=5)
        assert [block.name for block in blocks_of(small)] == [
            f"block_{i}" for i in kept
        ]
        found = small.evaluate(x, y, verbose=0)
        assert found == pytest.approx(loss(kept), rel=1e-5)


def test_blocks_behind_numbers_of_tokens():
    """The input of a `Sequential` keeps its dtype, here that of token ids."""
    layers = [Block(name=f"block_{i}") for i in range(3)]
    inputs = keras.Input((6,), dtype="int32")
    model = keras.Sequential([inputs, keras.layers.Embedding(9, WIDTH), *layers])
    x = np.random.default_rng(0).integers(0, 9, (4, 6)).astype("int32")
    small = ki.shrink(model, {"blocks": 2}, x)
    assert [tensor.dtype for tensor in small.inputs] == ["int32"]
    kept = [model.get_layer(block.name) for block in blocks_of(small)]
    expected = kept[1](kept[0](model.layers[0](x)))
    np.testing.assert_allclose(to_numpy(small(x)), to_numpy(expected), atol=1e-5)


def test_losses_by_the_names_of_outputs_and_their_weights(samples):
    """Each output wants another block gone; the weights say which one counts."""
    x, _ = samples
    blocks = blocks_of(chain(3))
    heads = {name: keras.layers.Dense(5, name=name) for name in ("near", "far")}

    def without(gone):
        output = inputs = keras.Input((6, WIDTH))
        for place, block in enumerate(blocks):
            output = output if place == gone else block(output)
        outputs = {name: head(output) for name, head in heads.items()}
        return keras.Model(inputs, [outputs["near"], outputs["far"]])

    wanted = {"near": 0, "far": 2}
    y = {
        name: without(gone).predict(x, verbose=0)[list(wanted).index(name)]
        for name, gone in wanted.items()
    }
    for name, gone in wanted.items():
        model = without(None)
        model.compile(
            "sgd",
            loss={each: "mse" for each in wanted},
            loss_weights={each: float(each == name) for each in wanted},
        )
        small = ki.shrink(model, {"blocks": 2}, (x, y), blocks_by="loss")
        stay = [block.name for place, block in enumerate(blocks) if place != gone]
        assert [block.name for block in blocks_of(small)] == stay


@pytest.mark.parametrize("blocks_by", ["influence", "loss"])
def test_called_by_the_name_of_the_argument(samples, blocks_by):
    usual = chain(3)
    x = inputs = keras.Input((6, WIDTH))
    for layer in blocks_of(usual):
        x = layer(x=x)
    model = keras.Model(inputs, usual.layers[-1](x))
    model.compile("adam", loss="mse")
    found, expected = (
        ki.shrink(each, {"blocks": 2}, samples, blocks_by=blocks_by).predict(
            samples[0], verbose=0
        )
        for each in (model, usual)
    )
    np.testing.assert_array_equal(found, expected)


class TestRefused:
    @pytest.mark.parametrize(
        "targets, arguments, match",
        [
            ({}, {}, "must be a dict such as"),
            ({"layers": 2}, {}, "`targets` must be one of"),
            ({"blocks": 0}, {}, "integer >= 1.*Received: 0"),
            ({"blocks": 1.5}, {}, "float in .0, 1."),
            ({"blocks": 5}, {}, "has 4. Give at most that"),
            ({"neurons": 21}, {}, "is 21, but .* has 20"),
            ({"hidden_dim": 8}, {}, "no KerasHub task or backbone"),
            ({"neurons": 0.5}, {"method": "size"}, "`method` must be one of"),
            (
                {"blocks": 2},
                {"blocks_by": "loss", "data": "x"},
                "The loss needs targets",
            ),
            ({"blocks": 2}, {"data": None}, "needs `data` to measure"),
            ({"blocks": 2}, {"data": None, "method": "magnitude"}, "needs `data`"),
        ],
    )
    def test_what_cannot_be_met(self, samples, targets, arguments, match):
        model = chain()
        if arguments.get("data") == "x":
            arguments = {**arguments, "data": samples[0]}
        with pytest.raises(ValueError, match=match):
            ki.shrink(model, targets, **{"data": samples, **arguments})

    def test_a_loss_that_is_not_finite_ranks_nothing(self, samples):
        model = chain(3)
        x, y = samples
        with pytest.raises(ValueError, match="without any one of its blocks is not fi"):
            ki.shrink(model, {"blocks": 2}, (x, y * np.nan), blocks_by="loss")
        budget = {"target_parameters": model.count_params() - 1, "verbose": 0}
        with pytest.raises(ValueError, match="as it is is not finite"):
            ki.search(model, (x, y * np.nan), **budget)

    def test_no_loss_and_no_blocks(self, samples):
        x = inputs = keras.Input((6, WIDTH))
        plain = keras.Model(inputs, keras.layers.Dense(5)(x))
        for axis, match in (("blocks", "no blocks to take out"), ("neurons", "has no")):
            with pytest.raises(ValueError, match=match):
                ki.shrink(plain, {axis: 1}, samples)
        model = chain()
        bare = keras.Model(model.input, model.output)
        with pytest.raises(ValueError, match="has none. Call `model.compile"):
            ki.shrink(bare, {"blocks": 2}, samples, blocks_by="loss")
