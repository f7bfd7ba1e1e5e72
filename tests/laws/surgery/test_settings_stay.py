"""Every copy has what was set on the layers of its model after they were made."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from keras_idea._keras.layers import walk
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import TEXT, with_tokenizer

NAMES = ("trainable", "_remat_mode", "rate", "_epsilon", "epsilon", "kernel_constraint")
IDS = {"token_ids": np.ones((2, 8), "int32"), "padding_mask": np.ones((2, 8), "int32")}


def settings(model, gone=()):
    """What is set on each layer, and on its variables."""
    return [
        (
            type(layer).__name__,
            {name: getattr(layer, name) for name in NAMES if hasattr(layer, name)},
            [(v.trainable, v.regularizer, v.constraint) for v in layer.variables],
        )
        for layer in walk(model, gone)
        # The variables of a model are those of its layers.
        if not isinstance(layer, (keras.Model, layers.InputLayer))
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
    "features": (
        lambda: lm("mistral"),
        lambda m: ki.shrink(m, {"features": 12}, IDS),
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


def test_what_a_copy_cannot_keep_is_said():
    model = tiny_lm("llama3")
    model.backbone.extra = layers.Dense(3)
    with pytest.raises(ValueError, match="differs in layer 'dense"):
        ki.compact(model)
