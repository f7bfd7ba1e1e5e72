"""`explain` says what can be pruned, and of every other layer why not."""

import fnmatch

import keras
import pytest

import keras_idea as ki
from keras_idea._finding.explain import some_of
from tests import cases
from tests.support.case_models import D, net

L = keras.layers


@cases.laws("explains", few=())
def test_explains(case):
    model = case.build()
    explained = ki.explain(model)
    lines = [line.split(None, 1) for line in str(explained).splitlines()]
    found = [f"{name} {text}" for name, text in lines if text.split()[0].isdigit()]
    assert found == case.groups
    handles = [
        f"{group.name} {group.hidden_dim}"
        for kind in ("neurons", "kv_groups", "channels")
        for group in ki.find_groups(model, [kind])
    ]
    assert handles == [" ".join(line.split()[:2]) for line in case.groups]
    others = dict(line for line in lines if not line[1].split()[0].isdigit())
    assert others.keys() == explained.left_out.keys()
    unnamed = set(others)
    for pattern, word in case.left:
        names = fnmatch.filter(others, pattern)
        assert names, f"no line of {pattern}: {others}"
        for name in names:
            assert word.lstrip("<") in others[name], f"{name}: {others[name]}"
            reads = word.startswith("<")
            assert ("reads the" in others[name]) == reads, name
            assert (name in explained.readers) == reads, name
        unnamed -= set(names)
    assert not unnamed, f"lines that the case does not have: {unnamed}"


def recurrent():
    return net(L.LSTM(12, name="lstm"), shape=(6, 4))


def unbuilt():
    return keras.Sequential([D(12), D(3)])


def softmax():
    return net(D(12, name="up"), L.Softmax(name="softmax"), D(3, name="out"))


def read_elsewhere():
    inputs = keras.Input((8,))
    hidden = D(12, "relu", name="up")(inputs)
    return keras.Model(inputs, [D(2, name="out")(hidden), hidden])


def quantized():
    model = net(D(12, "relu", name="up"), D(3, name="out"))
    model.get_layer("up").quantize("int8")
    return model


def normed():
    return net(D(12, name="up"), L.LayerNormalization(name="norm"), D(3, name="out"))


class OneHead(L.Layer):
    """Recorded twice, as it has code: the values of one head are no heads."""

    def build(self, shape):
        self.heads = L.MultiHeadAttention(1, 8, name="heads")
        self.heads.build(shape, shape)

    def call(self, x):
        return x + self.heads(x, x)


class Divided(L.Layer):
    """Zeros by zeros, once units are masked."""

    def build(self, shape):
        self.scale = self.add_weight((shape[-1],), initializer="ones")

    def call(self, x):
        return x / self.scale


class Constructed(L.Layer):
    """Its config holds what nobody could change."""

    def __init__(self, dim=12, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = L.InputSpec(axes={-1: dim})

    def call(self, x):
        return 2 * x


@pytest.mark.daily("torch")
@pytest.mark.parametrize(
    "make, words",
    [
        (recurrent, "It holds no built Dense"),
        (unbuilt, "no built Dense"),
        (unbuilt, "Build it"),
        (softmax, "up no: softmax"),
        (read_elsewhere, "up no: output"),
        (quantized, "up no: quantized"),
        (normed, "up no: norm"),
        (lambda: net(OneHead(name="one"), D(3), shape=(6, 8)), "one/heads no: reads"),
        (lambda: net(D(12, name="up"), Divided(), D(3)), "up no: divided"),
        (lambda: net(D(12, name="up"), Constructed(), D(3)), "up no: inputspec"),
    ],
)
def test_where_nothing_can_be_pruned(make, words):
    """A sentence, or a line of the layer with a word of the reason."""
    explained = ki.explain(make())
    assert not any(explained.groups.values())
    name, no, reason = words.partition(" no: ")
    if not no:
        assert words in str(explained)
        return
    assert reason in explained.left_out[name].lower()


@pytest.mark.daily("torch", "jax", "tensorflow")
def test_what_an_ffn_of_this_package_reads_stays():
    """On each backend: on TensorFlow alone, it was followed into the FFN."""
    inputs = keras.Input((8,))
    hidden = D(16, name="up")(inputs)
    hidden = hidden + ki.PrunableGatedFFN(12, name="ffn")(hidden)
    explained = ki.explain(keras.Model(inputs, D(3, name="out")(hidden)))
    assert "'ffn' reads or makes it" in explained.left_out["up"]


@pytest.mark.daily("torch")
def test_three_reasons_are_told():
    reasons = {"a": "it is wide", "b": "it is wide", "c": "it is deep"}
    assert some_of(reasons) == "a: it is wide; c: it is deep; and 1 more"
    assert some_of({"c": "it is deep"}) == "c: it is deep"
