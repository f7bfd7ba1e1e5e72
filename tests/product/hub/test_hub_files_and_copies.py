"""KerasHub's models that are copied or saved in the middle, or loaded over."""

import copy
import pickle

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_models import FULL, batch, tiny_lm
from tests.support.hub_training import foreign

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


TARGET = 10


def compiled_lm():
    model = tiny_lm("llama3")
    model.compile(keras.optimizers.AdamW(0.01), LOSS, weighted_metrics=None)
    return model, batch(model, np.random.default_rng(0), 16)


class Stop(keras.callbacks.Callback):
    """Calls a function in the middle of `fit`, after so many batches."""

    def __init__(self, batches, act):
        super().__init__()
        self.left, self.act = batches, act

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.act(self.model)


def answers(model, x):
    return to_numpy(model(x, training=False))


def optimizer_shapes(model):
    return [tuple(variable.shape) for variable in model.optimizer.variables]


@pytest.mark.daily()
@pytest.mark.parametrize("method", ["sensitivity", "learned_mask"])
def test_what_is_saved_in_the_middle_answers_as_the_model(method, tmp_path):
    import keras_hub

    model, data = compiled_lm()
    seen = {}

    def save(model):
        seen["answers"] = answers(model, data[0])
        seen["widths"] = [ffn.width for ffn in ki.find_ffns(model)]
        model.save_to_preset(tmp_path / "preset")
        model.save(tmp_path / "model.keras")
        try:
            seen["narrow"] = answers(ki.compact(model), data[0])
        except ValueError as error:
            seen["compact"] = str(error)

    prune = ki.IdeaPruneCallback(TARGET, 1, 8, method=method)
    model.fit(*data, epochs=4, callbacks=[prune, Stop(5, save)], **FIT)
    preset = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"))
    file = keras.models.load_model(tmp_path / "model.keras")
    for loaded in (preset, file):
        assert type(loaded) is type(model) and foreign(loaded) == []
        np.testing.assert_allclose(answers(loaded, data[0]), seen["answers"], atol=1e-5)
        if method == "sensitivity":
            assert TARGET < min(seen["widths"]) < FULL
            assert [ffn.width for ffn in ki.find_ffns(loaded)] == seen["widths"]
    assert len(seen["widths"]) == 2
    # What is masked can be compacted; not a draw of masks that are being learned.
    if method == "sensitivity":
        np.testing.assert_allclose(seen["narrow"], seen["answers"], atol=1e-5)
    else:
        assert "on_train_end" in seen["compact"]
    # Nothing of it has hurt the run, and nothing of us is left.
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {TARGET}
    assert foreign(model) == []
    model.fit(*data, **FIT)


@pytest.mark.daily()
def test_the_optimizer_of_a_file_saved_in_the_middle_is_the_stock_one(tmp_path):
    """It has the moments, and none of our variables: training goes on from them."""
    lm, data = compiled_lm()
    # Of a task of KerasHub's a file is compiled again without its optimizer's state.
    inputs = {
        name: keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=name)
        for name, tensor in lm.backbone.input.items()
    }
    outputs = keras.layers.Dense(32)(lm.backbone(inputs))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.AdamW(0.01), LOSS)
    model.fit(*data, **FIT)
    stock = optimizer_shapes(model)
    seen = {}

    def save(model):
        model.save(tmp_path / "model.keras")
        variables = model.optimizer.variables[: len(stock)]
        seen["optimizer"] = [to_numpy(variable) for variable in variables]

    prune = ki.IdeaPruneCallback(TARGET, 4, 8)
    model.fit(*data, epochs=4, callbacks=[prune, Stop(5, save)], **FIT)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert optimizer_shapes(loaded) == stock
    for variable, value in zip(
        loaded.optimizer.variables, seen["optimizer"], strict=True
    ):
        np.testing.assert_array_equal(to_numpy(variable), value)
    loaded.fit(*data, **FIT)


def test_after_a_stop_in_the_middle_the_next_fit_is_a_stock_one():
    """Nothing of a learned mask is left in the optimizer, or in the model."""
    model, data = compiled_lm()
    before = [id(variable) for variable in model.variables]

    def stop(model):
        model.stop_training = True

    prune = ki.IdeaPruneCallback(TARGET, 0, 8, method="learned_mask")
    model.fit(*data, epochs=4, callbacks=[prune, Stop(3, stop)], **FIT)
    assert foreign(model) == []
    assert [id(variable) for variable in model.variables] == before
    model.fit(*data, **FIT)
    trained = model.optimizer._trainable_variables
    assert list(map(id, trained)) == list(map(id, model.trainable_variables))


@pytest.mark.daily()
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_is_a_stock_model_at_any_time(copied):
    """In the middle of pruning, and masked: it has the zeros, and nothing of us."""
    model, data = compiled_lm()
    prune = start_pruning(model, TARGET, 1, 2)
    for _ in range(3):
        model.train_on_batch(*data)
    middle = copied(model)
    prune.on_train_end()
    for twin in (middle, copied(model)):
        np.testing.assert_array_equal(answers(twin, data[0]), answers(model, data[0]))
        assert foreign(twin) == []
        assert [ffn.width for ffn in ki.find_ffns(twin)] == [TARGET] * 2
        assert len(twin.variables) == len(model.variables)


@pytest.mark.daily()
def test_weights_can_be_loaded_over_a_masked_model(tmp_path):
    """Who is active is read off them: those of a wide model bring every neuron back."""
    path = tmp_path / "stock.weights.h5"
    stock, data = compiled_lm()
    stock.save_weights(path)
    model, _ = compiled_lm()
    model.fit(
        *data, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 2, compact="off")], **FIT
    )
    assert [ffn.width for ffn in ki.find_ffns(model)] == [TARGET] * 2
    model.load_weights(path)
    assert [ffn.width for ffn in ki.find_ffns(model)] == [FULL] * 2
    np.testing.assert_array_equal(answers(model, data[0]), answers(stock, data[0]))


@pytest.mark.daily()
def test_weights_of_another_width(tmp_path):
    """Keras says it of its own layers."""
    path = tmp_path / "narrow.weights.h5"
    model, data = compiled_lm()
    model.fit(*data, epochs=2, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 4)], **FIT)
    model.save_weights(path)
    wide, _ = compiled_lm()
    with pytest.raises(ValueError, match=rf"{FULL}.*{TARGET}"):
        wide.load_weights(path)
    narrow = tiny_lm("llama3", intermediate_dim=TARGET)
    narrow.load_weights(path)
    np.testing.assert_array_equal(answers(narrow, data[0]), answers(model, data[0]))


@pytest.mark.daily()
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_presets_of_half_precision(policy, tmp_path):
    """KerasHub 0.32 loads a task's preset of mixed precision only with `dtype`."""
    import keras_hub

    model = tiny_lm("llama3", dtype=policy)
    model.compile("sgd", LOSS, weighted_metrics=None)
    data = batch(model, np.random.default_rng(0), 16)
    model.fit(*data, epochs=2, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 4)], **FIT)
    narrow = ki.compact(model)
    narrow.save_to_preset(tmp_path / "preset")
    loaded = keras_hub.models.CausalLM.from_preset(
        str(tmp_path / "preset"), dtype=policy
    )
    np.testing.assert_array_equal(answers(loaded, data[0]), answers(narrow, data[0]))
