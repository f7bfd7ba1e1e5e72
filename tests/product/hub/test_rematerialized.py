"""Blocks of every family computed again in the backward pass: the same numbers."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._keras.layers import rematerialize
from keras_idea._lm.runs.compiling import transformer_blocks
from tests.support.hub_models import MODELS, batch, tiny_lm

# EdRec is no language model, a mixture adds a loss of its own: neither is a run's.
_OTHERS = ("edrec", "mixtral", "qwen moe", "qwen3 moe", "qwen3.5 moe", "gpt oss")
CAUSAL = [name for name in MODELS if name not in _OTHERS]


def pruned(name, again):
    keras.utils.set_random_seed(0)
    model = tiny_lm(name)
    # Not Adam, which would make much of a gradient that is nothing but rounding. Nor
    # ten times this rate: there weights that differ by one unit in their last place
    # give Gemma 4 losses that differ by 6e-5 after three steps.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keras.Model.compile(model, keras.optimizers.SGD(0.01), loss)
    blocks = transformer_blocks(model)
    assert blocks
    for block in blocks if again else ():
        rematerialize(block)
    x, y = batch(model, np.random.default_rng(0))
    width = ki.find_ffns(model)[0].hidden_dim // 2
    prune = ki.IdeaPruneCallback(width, begin_step=1, prune_steps=2)
    history = model.fit(
        x, y, batch_size=len(y), epochs=4, verbose=0, callbacks=[prune], shuffle=False
    )
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {width}
    weights = map(keras.ops.convert_to_numpy, model.trainable_variables)
    return history.history["loss"], list(weights)


@pytest.mark.daily()
@pytest.mark.parametrize("name", CAUSAL)
def test_pruned_as_without(name):
    losses, weights = pruned(name, again=False)
    losses_again, weights_again = pruned(name, again=True)
    np.testing.assert_allclose(losses_again, losses, rtol=1e-6)
    for weight, expected in zip(weights_again, weights, strict=True):
        # A sum of gradients rounds by the largest of its terms.
        atol = 2e-5 * np.abs(expected).max()
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=atol)
