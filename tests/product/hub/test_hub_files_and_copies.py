"""KerasHub's models that are frozen, copied, saved in the middle, or refused."""

import copy
import pickle

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.rebuild import StockCopyWarning
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_models import FULL, batch, tiny_backbone, tiny_lm

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


TARGET = 10


def trained_lm(name="llama3"):
    model = ki.make_prunable(tiny_lm(name))
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


@pytest.mark.parametrize("method", ["sensitivity", "learned_mask", "activation"])
@pytest.mark.filterwarnings("ignore::keras_idea.hub.rebuild.StockCopyWarning")
def test_what_is_saved_in_the_middle_answers_as_the_model(method, tmp_path):
    import keras_hub

    model, data = trained_lm()
    seen = {}

    def save(model):
        seen["answers"] = answers(model, data[0])
        model.save_to_preset(tmp_path / "preset")
        model.save(tmp_path / "model.keras")
        for name, act in (("strip", ki.strip), ("compact", ki.compact)):
            try:
                act(model)
            except ValueError as error:
                seen[name] = str(error)

    begin = 6 if method == "activation" else 1
    prune = ki.IdeaPruneCallback(TARGET, begin, 8, method=method)
    model.fit(*data, epochs=4, callbacks=[prune, Stop(5, save)], **FIT)
    preset = keras_hub.models.CausalLM.from_preset(str(tmp_path / "preset"))
    file = keras.models.load_model(tmp_path / "model.keras")
    for loaded in (preset, file):
        np.testing.assert_allclose(answers(loaded, data[0]), seen["answers"], atol=1e-5)
    assert "on_train_end" in seen["strip"]
    # What is masked can be compacted; what is being measured cannot.
    assert ("compact" in seen) == (method != "sensitivity")
    # Nothing of it has hurt the run.
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {TARGET}
    stock = ki.strip(model)
    stock.fit(*data, **FIT)


def test_stripped_after_a_stop_in_the_middle():
    """Nothing of a probe is left in the optimizer: the next fit is a stock one."""
    model, data = trained_lm()

    def stop(model):
        model.stop_training = True

    prune = ki.IdeaPruneCallback(TARGET, 0, 8, method="learned_mask")
    model.fit(*data, epochs=4, callbacks=[prune, Stop(3, stop)], **FIT)
    ki.strip(model).fit(*data, **FIT)
    trained = model.optimizer._trainable_variables
    assert list(map(id, trained)) == list(map(id, model.trainable_variables))


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: m.save_to_preset("preset"),
        lambda m: m.save("model.keras"),
    ],
    ids=["deepcopy", "pickle", "preset", "keras"],
)
def test_a_copy_that_is_a_stock_model_is_told(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, data = trained_lm()
    # Idle, nothing would be lost: nothing is said.
    model.save("idle.keras")
    prune = start_pruning(model, TARGET, 1, 2)
    for _ in range(3):
        model.train_on_batch(*data)
    with pytest.warns(StockCopyWarning, match="is a stock model that answers as this"):
        copied(model)
    prune.on_train_end()
    with pytest.warns(StockCopyWarning, match="28 masked neurons are zeros"):
        loaded = copied(model)
    if loaded is not None:
        np.testing.assert_array_equal(answers(loaded, data[0]), answers(model, data[0]))
        assert not ki.find_ffns(loaded)


@pytest.mark.parametrize("part", ["backbone", "down"])
def test_a_frozen_ffn_is_refused_when_fit_begins(part):
    model = tiny_lm("llama3")
    block = model.backbone.transformer_layers[1]
    parts = {"backbone": model.backbone, "down": block._feedforward_output_dense}
    parts[part].trainable = False
    ki.make_prunable(model)
    model.compile("adam", LOSS, weighted_metrics=None)
    data = batch(model, np.random.default_rng(0), 16)
    before = [to_numpy(v) for v in model.variables]
    with pytest.raises(ValueError, match="transformer_layer_1.*frozen.*Unfreeze"):
        model.fit(*data, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 2)], **FIT)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))


def test_lora_and_quantization_beside_the_ffns_are_refused():
    for name, enable, message in (
        ("gemma", lambda m: m.backbone.enable_lora(2), "has LoRA enabled"),
        ("llama3", lambda m: m.quantize("int8", filters="attention"), "is quantized"),
    ):
        model = tiny_lm(name)
        enable(model)
        with pytest.raises(ValueError, match=f"{message}.*no narrow model"):
            ki.make_prunable(model)
        assert not ki.find_ffns(model)


def test_lora_that_comes_after_the_conversion_is_refused_when_fit_begins():
    model, data = trained_lm("gemma")
    model.backbone.transformer_layers[0].attention.query_dense.enable_lora(2)
    with pytest.raises(ValueError, match="has LoRA enabled.*prune before it"):
        model.fit(*data, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 2)], **FIT)


def test_a_backbone_that_its_config_does_not_describe_is_refused():
    """As compact() would find after the run."""
    backbone = tiny_backbone("llama3")
    backbone.vocabulary_size += 1
    with pytest.raises(ValueError, match="made again from its config, has other var"):
        ki.make_prunable(backbone)
    assert not ki.find_ffns(backbone)
    backbone.vocabulary_size -= 1
    ki.make_prunable(backbone)


def test_the_dry_run_makes_no_values():
    """Keras would give them to its next model."""
    from keras.src.backend.common import global_state

    ki.make_prunable(tiny_backbone("llama3"))
    assert not global_state.get_global_attribute("uninitialized_variables", [])


def test_weights_of_a_stock_file_are_loaded_before(tmp_path):
    path = tmp_path / "stock.weights.h5"
    tiny_lm("llama3").save_weights(path)
    model, _ = trained_lm()
    with pytest.raises(ValueError, match="Load it before make_prunable"):
        model.load_weights(path)


def test_weights_of_another_width(tmp_path):
    path = tmp_path / "narrow.weights.h5"
    model, data = trained_lm()
    model.fit(*data, epochs=2, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 4)], **FIT)
    model.save_weights(path)
    wide, _ = trained_lm()
    with pytest.raises(ValueError, match=f"{TARGET} neurons of .*has {FULL}"):
        wide.load_weights(path)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_presets_of_half_precision(policy, tmp_path):
    """KerasHub 0.32 loads a task's preset of mixed precision only with `dtype`."""
    import keras_hub

    model = tiny_lm("llama3", dtype=policy)
    ki.make_prunable(model).compile("sgd", LOSS, weighted_metrics=None)
    data = batch(model, np.random.default_rng(0), 16)
    model.fit(*data, epochs=2, callbacks=[ki.IdeaPruneCallback(TARGET, 1, 4)], **FIT)
    narrow = ki.compact(model)
    narrow.save_to_preset(tmp_path / "preset")
    loaded = keras_hub.models.CausalLM.from_preset(
        str(tmp_path / "preset"), dtype=policy
    )
    np.testing.assert_array_equal(answers(loaded, data[0]), answers(narrow, data[0]))
