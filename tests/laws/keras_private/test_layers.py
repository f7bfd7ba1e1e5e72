"""What Keras's layers are known to do inside; each test names what has moved."""

import keras
import numpy as np
import pytest

from keras_idea.keras_private.bare_copy import KEPT, bare_copy, mirror_state
from keras_idea.keras_private.layers import (
    all_layers,
    become,
    config_number,
    own_attributes,
    rematerialize,
    renew_weight,
    retrack_parameters,
    set_config_number,
    set_input_dim,
    set_last_dim,
    set_output_dim,
    stored_kernel,
    sublayers,
    takes_training,
    unlocked,
    untrack,
    walk,
    without_remat,
)
from keras_idea.keras_private.variables import give_value
from tests.support.helpers import to_numpy


class Pair(keras.layers.Layer):
    """Two layers, of which the second is in a list."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = keras.layers.Dense(3, name="first")
        self.more = [keras.layers.Dense(2, name="second")]
        # No name of tensorflow's, though it begins so: KerasHub has such layers.
        self._self_attention = "additive"

    def build(self, input_shape):
        self.first.build(input_shape)
        self.more[0].build((*input_shape[:-1], 3))

    def call(self, x):
        return self.more[0](self.first(x))


def built_pair():
    pair = Pair()
    pair.build((1, 4))
    return pair


def test_tracker_can_be_unlocked():
    pair, late = built_pair(), keras.layers.Dense(1)
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.late = late
    unlocked(pair, setattr, "late", late)
    assert late in sublayers(pair)
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.later = keras.layers.Dense(1)


def test_tracker_is_locked_again_after_an_error():
    pair = built_pair()
    with pytest.raises(AttributeError):
        unlocked(pair, delattr, "nothing")
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.late = keras.layers.Dense(1)


def test_sublayer_can_be_untracked():
    pair = built_pair()
    first = pair.first
    untrack(pair, first)
    assert [layer.name for layer in sublayers(pair)] == ["second"]
    assert len(pair.variables) == 2


def test_a_copy_tracks_copies_in_the_order_of_the_original():
    """Whatever order its attributes are set in, and what no attribute holds."""
    pair = built_pair()
    copy, copies = bare_copy(pair), {}

    def copied(layer):
        return copies.setdefault(id(layer), keras.layers.Dense(1, name=layer.name))

    copy.more, copy.first = [copied(pair.more[0])], copied(pair.first)
    mirror_state(pair, copy, copied)
    assert [layer.name for layer in sublayers(copy)] == ["first", "second"]
    with pytest.raises(ValueError, match="already built"):
        copy.late = keras.layers.Dense(1)


def test_sublayers_can_be_listed():
    pair = built_pair()
    model = keras.Sequential([keras.Input((4,)), pair])
    assert sublayers(pair) == [pair.first, pair.more[0]]
    kinds = [type(layer).__name__ for layer in sublayers(model)]
    assert kinds == ["InputLayer", "Pair"]
    assert [type(layer).__name__ for layer in model.layers] == ["Pair"]


def test_all_layers_go_into_a_teacher_and_walk_does_not():
    teacher, student = (
        keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name=name)
        for name in ("teacher", "student")
    )
    distiller = keras.distillation.Distiller(
        teacher, student, keras.distillation.LogitsDistillation()
    )
    assert teacher in all_layers(distiller) and student in all_layers(distiller)
    assert student in list(walk(distiller)) and teacher not in list(walk(distiller))


@pytest.mark.parametrize("kind", ["Dense", "EinsumDense"])
def test_kernel_is_stored_beside_the_computed_one(kind):
    make = {
        "Dense": lambda: keras.layers.Dense(3),
        "EinsumDense": lambda: keras.layers.EinsumDense("ab,bc->ac", (3,)),
    }
    layer = make[kind]()
    layer.build((None, 4))
    assert stored_kernel(layer) is layer.kernel
    layer.enable_lora(2)
    assert layer.kernel is not stored_kernel(layer)
    assert isinstance(stored_kernel(layer), keras.Variable)
    assert stored_kernel(layer).shape == (4, 3)


def test_layer_can_become_one_of_a_subclass():
    class Doubled(keras.layers.Dense):
        def call(self, inputs):
            return 2 * super().call(inputs)

    dense = keras.layers.Dense(2)
    model = keras.Sequential([keras.Input((4,)), dense])
    x = np.ones((1, 4), "float32")
    before = to_numpy(model(x))
    become(dense, Doubled)
    np.testing.assert_allclose(to_numpy(model(x)), 2 * before, rtol=1e-6)
    become(dense, keras.layers.Dense)
    np.testing.assert_array_equal(to_numpy(model(x)), before)


def test_remat_can_be_left_out():
    with keras.RematScope(mode="full"):
        dense = keras.layers.Dense(2)
    dense.build((1, 4))
    passes = []

    def rematerialized_call(layer_call, *args, **kwargs):
        passes.append(layer_call)
        return layer_call

    dense.rematerialized_call = rematerialized_call
    x = np.ones((1, 4), "float32")
    for _ in range(2):
        with without_remat(dense):
            dense(x)
    assert not passes
    dense(x)
    assert len(passes) == 1


def test_torch_knows_parameters_of_another_shape():
    dense = keras.layers.Dense(2)
    dense.build((1, 4))
    give_value(dense.kernel, keras.ops.ones((4, 1)))
    retrack_parameters([dense])
    if keras.backend.backend() == "torch":
        shapes = {tuple(p.shape) for _, p in dense.named_parameters()}
        assert shapes == {(4, 1), (2,)}
        assert any(p is dense.kernel.value for _, p in dense.named_parameters())


def test_own_attributes_are_told_from_the_frameworks():
    names = {"first", "more", "_self_attention"}
    assert set(own_attributes(built_pair())) == names

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.pair = Pair()

    assert set(own_attributes(Model())) == {"pair"}


def layers_on_channels():
    yield keras.layers.BatchNormalization(), (None, 5)
    yield keras.layers.BatchNormalization(axis=2), (None, 3, 5)
    yield keras.layers.PReLU(shared_axes=[1]), (None, 3, 5)
    yield keras.layers.TimeDistributed(keras.layers.Dense(2)), (None, 3, 5)


def test_a_layer_is_told_its_last_axis():
    for layer, shape in layers_on_channels():
        layer.build(shape)
        set_last_dim(layer, 4)
        same = type(layer).from_config(layer.get_config())
        same.build((*shape[:-1], 4))
        assert layer.get_build_config() == same.get_build_config()
        told, made = (getattr(la.input_spec, "axes", None) for la in (layer, same))
        assert told == made


def test_which_layers_take_training():
    assert takes_training(keras.layers.Dropout(0.1))
    assert not takes_training(keras.layers.ReLU())


def test_a_layer_is_rematerialized_from_now_on():
    layer = keras.layers.Dense(2)
    assert layer._remat_mode is None
    rematerialize(layer)
    with keras.RematScope("full"):
        made_so = keras.layers.Dense(2)
    assert layer._remat_mode == made_so._remat_mode
    assert layer._remat_mode.mode == "full"
    assert keras.layers.Dense(2)._remat_mode is None


def test_a_weight_is_renewed_in_its_place():
    layer = keras.layers.BatchNormalization()
    layer.build((None, 3))
    before = list(layer.non_trainable_variables)

    def make():
        return layer.add_weight(name="other", shape=(5,), trainable=False)

    renew_weight(layer, "moving_mean", make)
    after = layer.non_trainable_variables
    assert [v.name for v in after] == ["other", before[1].name]
    assert after[0] is layer.moving_mean and after[1] is before[1]


def test_dense_layers_are_told_their_sizes():
    """What a file says of them is what they have."""
    inputs = keras.Input((4, 6))
    up = keras.layers.EinsumDense("btd,df->btf", (None, 8), bias_axes="f")
    down = keras.layers.Dense(6)
    model = keras.Model(inputs, down(up(inputs)))
    for variable, shape in (
        (up.kernel, (6, 3)),
        (up.bias, (3,)),
        (down.kernel, (3, 6)),
    ):
        give_value(variable, keras.ops.ones(shape))
    set_output_dim(up, 3)
    set_input_dim(down, 3)
    again = keras.Model.from_config(model.get_config())
    shapes = [[tuple(v.shape) for v in m.variables] for m in (model, again)]
    assert shapes[0] == shapes[1]
    assert down.get_build_config() == {"input_shape": (None, None, 3)}


def test_numbers_of_a_config_are_set():
    class Noted(keras.layers.Layer):
        def __init__(self, width, **kwargs):
            super().__init__(**kwargs)

    class Own(Noted):
        def __init__(self, width, **kwargs):
            super().__init__(width, **kwargs)
            self.width = width

        def get_config(self):
            return {**keras.layers.Layer.get_config(self), "width": self.width}

    for layer in (Noted(width=7), Own(7)):
        assert config_number(layer, "width") == 7
        set_config_number(layer, "width", 5)
        assert layer.get_config()["width"] == 5
    assert config_number(layer, "trainable") is None


def test_each_attribute_that_keras_gives_a_layer_is_kept_or_made_anew():
    """Keras may come to give more: then somebody must say which it is."""
    made = {"name", "_dtype_policy", "_auto_config", "build", "quantize", "_lock"}
    made |= {"_inbound_nodes", "_outbound_nodes", "_losses", "_loss_ids", "_tracker"}
    made |= {"_losses_override", "_layers", "_metrics", "_seed_generators"}
    made |= {"_trainable_variables", "_non_trainable_variables"}
    # Of a backend's own class, of which Keras's is derived.
    made |= set(vars(keras.layers.Layer.__base__())) | {"_tracked"}
    left = set(vars(keras.layers.Layer())) - set(KEPT) - made
    assert {name for name in left if not name.startswith("_self_")} == set()


def test_a_bare_copy_is_of_its_class_and_holds_nothing():
    dense = keras.layers.Dense(3, name="first", dtype="bfloat16", trainable=False)
    dense.build((2, 4))
    copy = bare_copy(dense)
    assert type(copy) is keras.layers.Dense and copy.name == "first"
    assert copy.path == dense.path and copy.dtype_policy == dense.dtype_policy
    assert copy.built and not copy.trainable and not copy.variables
    assert dense.variables
