"""Every copy has what was set on the layers of its model after they were made."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from keras_idea.keras_private.layers import walk
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import TEXT, with_tokenizer

NAMES = ("trainable", "_remat_mode", "rate", "_epsilon", "epsilon", "kernel_constraint")
IDS = {"token_ids": np.ones((2, 8), "int32"), "padding_mask": np.ones((2, 8), "int32")}
X = np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype("float32")
Y = np.arange(16) % 3


def settings(model, gone=()):
    """What is set on each layer, and on its variables."""
    return [
        (
            type(layer).__name__,
            {name: getattr(layer, name) for name in NAMES if hasattr(layer, name)},
            [(v.trainable, v.regularizer, v.constraint) for v in layer.variables],
        )
        for layer in walk(model, gone)
        if not isinstance(layer, keras.Model)  # whose variables are those of layers
        and not type(layer).__name__.endswith(("Preprocessor", "Tokenizer"))
    ] + [model.trainable]


def changed(model):
    """Sets on every layer something that no config of KerasHub's holds."""
    held = [layer for layer in walk(model) if layer is not model]
    for i, layer in enumerate(held):
        layer.trainable = i % 3 == 0
        for name in ("rate", "_epsilon", "epsilon"):
            if isinstance(vars(layer).get(name), float):
                setattr(layer, name, 0.01 * (1 + i % 7))
        for variable in layer.trainable_variables[:1]:
            variable.regularizer = keras.regularizers.L2(0.01 * (1 + i % 7))
    return model


def lm(family, num_layers=2, **more):
    with keras.RematScope("activations"):  # "full" traces `training` on jax
        return changed(tiny_lm(family, num_layers=num_layers, **more))


def chain():
    x = inputs = keras.Input((8,))
    for _ in range(3):
        with keras.RematScope("full"):
            ffn = keras.Sequential([layers.Dense(12, "relu"), layers.Dense(8)])
        x = layers.Add()([x, layers.Dropout(0.1)(ffn(x))])
    return changed(keras.Model(inputs, layers.Dense(4)(x), trainable=False))


COPIES = {
    "compact": (lambda: lm("mistral"), ki.compact),
    "sliced": (lambda: lm("mistral"), lambda m: ki.sliced(m, 12)),
    "neurons": (
        lambda: lm("mistral"),
        lambda m: ki.shrink(m, {"neurons": 12}, method="magnitude"),
    ),
    "hidden_dim": (
        lambda: lm("mistral"),
        lambda m: ki.shrink(m, {"hidden_dim": 12}, IDS),
    ),
    "vocabulary": (
        lambda: with_tokenizer(lm("llama3", vocabulary_size=300), "llama3", "bpe", 300),
        lambda m: ki.shrink(m, {"vocabulary": 290}, TEXT),
    ),
    "a chain": (chain, ki.compact),
}


@pytest.mark.parametrize("kind", COPIES)
def test_what_was_set_stays(kind):
    model, copied = COPIES[kind]
    model = model()
    before = settings(model)
    assert len({str(row[1:]) for row in before[:-1]}) > 5
    assert settings(copied(model)) == before == settings(model)


@pytest.mark.parametrize("make", [lambda: lm("llama3", 3), chain], ids=["hub", "chain"])
def test_the_blocks_that_stay_keep_theirs(make):
    from keras_idea.shapes.blocks import find_blocks, take_out

    model = make()
    assert settings(take_out(model, [0, 2])) == settings(
        model, [find_blocks(model).layers[1]]
    )


class Block(layers.Layer):
    """Adds a loss, which only it can compute, if it is asked to."""

    def __init__(self, adds=False, **kwargs):
        super().__init__(**kwargs)
        self.adds, self.norm = adds, layers.BatchNormalization()

    def get_config(self):
        return {**super().get_config(), "adds": self.adds}

    def call(self, x):
        x = self.norm(x)
        if self.adds:
            self.add_loss(keras.ops.mean(x**2))
        return x


def image_model():
    """A frozen backbone below a head; its norms know other data than they are given."""
    import keras_hub

    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
        image_shape=(8, 8, 3),
        name="backbone",
    )
    backbone.trainable = False
    x = Block()(layers.GlobalAveragePooling2D()(backbone(backbone.input)))
    x = layers.Dropout(0.1)(layers.Dense(16, "relu")(x))
    model = keras.Model(backbone.input, layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss)
    return model


FROZEN = {
    "compact": ki.compact,
    "shrink": lambda m: ki.shrink(m, {"neurons": 8}, method="magnitude"),
    "as_functional": ki.as_functional,
}


@pytest.mark.parametrize("kind", FROZEN)
def test_a_frozen_backbone_stays_as_it_is(kind):
    """Statistics too: a frozen BatchNormalization computes as in inference."""
    copy = FROZEN[kind](image_model())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    copy.compile(keras.optimizers.SGD(0.01), loss)
    norms = [n for n in walk(copy) if isinstance(n, layers.BatchNormalization)]
    still = [norm for norm in norms if not norm.trainable]
    assert len(still) == len(norms) - 1 > 1
    frozen = [variable for norm in still for variable in norm.variables]
    before = [keras.ops.convert_to_numpy(v) for v in frozen]
    copy.fit(X, Y, batch_size=16, verbose=0)
    for old, variable in zip(before, frozen, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), old)


def test_as_functional_keeps_settings_and_losses():
    blocks = [Block(adds=True), Block(activity_regularizer=keras.regularizers.L2(0.1))]
    inner = keras.Sequential([*blocks, layers.Dropout(0.1), layers.Dense(2)])
    model = keras.Sequential([keras.Input((4,)), inner])
    blocks[0].norm.momentum, inner.layers[-2].rate = 0.5, 0.0
    inner.layers[-1].kernel.regularizer = keras.regularizers.L2(0.5)
    copy, x = ki.as_functional(model), np.ones((2, 4), "float32")
    model(x, training=False), copy(x, training=False)
    assert len(model.losses) == 3
    np.testing.assert_allclose(
        sorted(float(loss) for loss in copy.losses),
        sorted(float(loss) for loss in model.losses),
        rtol=1e-5,
    )
    assert [la.rate for la in copy.layers if type(la) is layers.Dropout] == [0.0]
    norms = [n for n in walk(copy) if isinstance(n, layers.BatchNormalization)]
    assert [norm.momentum for norm in norms] == [0.5, 0.99]
    model.compile("sgd", "mse")
    model.fit(x, x[:, :2], verbose=0)
    assert np.isfinite(copy.predict(x, verbose=0)).all()  # on jax no array is shared


def test_a_scope_that_names_a_layer_stays_where_the_copy_has_another_name():
    with keras.RematScope("list_of_layers", layer_names=["same"]):
        inner = [keras.Sequential([layers.Dense(4, name="same")]) for _ in range(2)]
    model = keras.Sequential([keras.Input((4,)), *inner])
    dense = [la for la in ki.as_functional(model).layers if la.variables]
    assert len({la.name for la in dense}) == 2
    assert all(la._remat_mode is not None for la in dense)


def test_what_a_copy_cannot_keep_is_said():
    with keras.RematScope("full"):
        block = Block()
    block.norm._remat_mode = None
    model = keras.Sequential([keras.Input((4,)), block])
    with pytest.warns(UserWarning, match="RematScope"):
        ki.as_functional(model)
    model = tiny_lm("llama3")
    model.backbone.extra = layers.Dense(3)
    with pytest.raises(ValueError, match="differ in layer 'dense"):
        ki.compact(model)
