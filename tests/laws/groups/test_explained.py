"""What `explain` says where nothing, or only a part, can be pruned: what is true."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki

WIDTH = 12


def test_a_layer_that_reads_neurons_has_a_line():
    inputs = keras.Input((6,))
    up, down = layers.Dense(WIDTH, "relu", name="up"), layers.Dense(3, name="down")
    explained = ki.explain(keras.Model(inputs, down(up(inputs))))
    assert explained.left_out == {"down": "it is an output of the model"}
    assert explained.readers == {"down": "up"}
    assert str(explained).splitlines() == [
        "up    12 neurons",
        "down  reads the neurons of up; its own outputs: no, it is an output of the "
        "model",
    ]


def test_a_layer_that_reads_and_is_pruned_has_one_line():
    chain = [layers.Dense(n, "relu", name=f"dense_of_{n}") for n in (8, 7, 3)]
    explained = ki.explain(keras.Sequential([keras.Input((6,)), *chain]))
    assert list(explained.taken.values()) == [8, 7]
    assert list(explained.readers) == ["sequential/dense_of_3"]
    assert len(str(explained).splitlines()) == 3


class Student(keras.Model):
    """It holds a teacher that it never calls."""

    def __init__(self):
        super().__init__()
        chain = [keras.Input((6,)), layers.Dense(WIDTH, "relu"), layers.Dense(3)]
        self.teacher = keras.Sequential(chain, name="teacher")
        self.up, self.down = layers.Dense(WIDTH, "relu"), layers.Dense(3)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, WIDTH))

    def call(self, x):
        return self.down(self.up(x))


def test_a_teacher_that_is_not_called():
    model = Student()
    model.build((None, 6))
    explained = ki.explain(model)
    assert len(explained.taken) == 1
    of_teacher = {w for path, w in explained.left_out.items() if "teacher" in path}
    assert of_teacher == {"the model's `call` does not call it"}


def a_subclass():
    class Mine(layers.MultiHeadAttention):
        pass

    inputs = keras.Input((5, 8))
    return keras.Model(inputs, Mine(2, 4, name="mine")(inputs, inputs))


def test_a_subclass_of_an_attention_layer_is_named():
    explained = ki.explain(a_subclass())
    assert explained.left_out == {
        "mine": "it is a Mine, a class made from MultiHeadAttention"
    }
    model = a_subclass()
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(targets={"kv_groups": 1}, begin_step=1, prune_steps=1)
    with pytest.raises(ValueError, match="a class made from MultiHeadAttention"):
        model.fit(*[np.zeros((2, 5, 8))] * 2, verbose=0, callbacks=[prune])


@pytest.mark.parametrize(
    "chain, says",
    [
        (
            [keras.Input((6, 4)), layers.LSTM(WIDTH)],
            "It holds no Dense, EinsumDense or attention layer, so nothing in it can "
            "be pruned.",
        ),
        (
            [layers.Dense(WIDTH), layers.Dense(3)],
            "It holds no built Dense layer. Build it, or call it on data, first",
        ),
        (
            [layers.LSTM(WIDTH)],
            "It is not built, and holds no Dense layer yet. Build it, or call it on "
            "data, first",
        ),
    ],
    ids=["none", "not built", "neither"],
)
def test_nothing_is_said_in_true_words(chain, says):
    model = keras.Sequential(chain)
    assert str(ki.explain(model)).startswith(says)
    if model.built:
        model.compile("adam", "mse")
        prune = ki.IdeaPruneCallback(4, begin_step=1, prune_steps=1)
        with pytest.raises(ValueError, match="so nothing in it can be pruned"):
            x, y = np.zeros((2, 6, 4)), np.zeros((2, WIDTH))
            model.fit(x, y, verbose=0, callbacks=[prune])
