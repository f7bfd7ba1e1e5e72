"""FFNs without a gate, wherever those with one can be: methods, files, a monitor."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Sensitivity
from tests.support.helpers import residual_model, set_random_weights, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}
METHODS = ["sensitivity", "random", "activation", "learned_mask"]


def make(**arguments):
    model = residual_model(ffn=ki.PrunableFFN, use_bias=True, **arguments)
    set_random_weights(model)
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    return model


def pruning(**arguments):
    return ki.IdeaPruneCallback(4, begin_step=5, prune_steps=10, **arguments)


@pytest.mark.parametrize("method", METHODS)
def test_methods_narrow_in_fit_as_masked(data, method):
    """The narrow model, the masked one compacted, and what is left of its neurons."""
    models = {}
    for compact in ("off", "progressive"):
        keras.utils.set_random_seed(0)
        model = models[compact] = make()
        prune = pruning(compact=compact, method=method)
        model.fit(*data, epochs=3, callbacks=[prune], **FIT)
    masked, narrow = models["off"], models["progressive"]
    for ffn, other in zip(*map(ki.find_ffns, (narrow, masked)), strict=True):
        assert ffn.hidden_dim == 4
        np.testing.assert_array_equal(ffn.original_indices, other.kept_neurons())
        assert to_numpy(ffn.scores).shape == (2, 4)
    expected = ki.compact(masked).predict(data[0], verbose=0)
    found = narrow.predict(data[0], verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    plain = ki.compact(narrow)
    kinds = [type(layer) for layer in plain.layers if layer.name.startswith("ffn")]
    assert kinds == [ki.UngatedFFN] * 2
    np.testing.assert_allclose(plain.predict(data[0], verbose=0), found, atol=1e-6)


def test_a_run_goes_on_from_a_checkpoint(data, tmp_path):
    """Killed in the middle of pruning, it ends with the same neurons and weights."""

    def fit(model, folder, stop=None):
        class Kill(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if epoch + 1 == stop:
                    raise KeyboardInterrupt

        checkpoint = ki.Checkpoint(folder)
        epoch = checkpoint.restore(model)
        callbacks = [pruning(), checkpoint, Kill()]
        model.fit(*data, epochs=3, initial_epoch=epoch, callbacks=callbacks, **FIT)

    straight, killed = make(), make()
    fit(straight, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        fit(killed, tmp_path / "killed", stop=1)
    resumed = make()
    fit(resumed, tmp_path / "killed")
    for ours, theirs in zip(resumed.variables, straight.variables, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-6)


def test_files_and_configs(data, tmp_path):
    model = make()
    model.fit(*data, epochs=3, callbacks=[pruning()], **FIT)
    expected = model.predict(data[0], verbose=0)
    for kind, made in (("prunable", model), ("plain", ki.compact(model))):
        made.save(tmp_path / f"{kind}.keras")
        loaded = keras.models.load_model(tmp_path / f"{kind}.keras")
        np.testing.assert_allclose(loaded.predict(data[0], verbose=0), expected, 1e-5)


def test_a_monitor_watches_them(data, tmp_path):
    model = make()
    monitor = ki.Monitor(tmp_path, neurons_every=5)
    model.fit(*data, epochs=3, callbacks=[pruning(), monitor], **FIT)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]
    assert list(tmp_path.rglob("events.out.*"))


def test_an_average_over_two_matrices():
    """The mean over matrices is over two rows, not three."""
    layer = ki.PrunableFFN(6)
    layer.build((None, 4))
    layer.state.score_by(Sensitivity(matrix_reduce="mean").scoring)
    rows = np.arange(12.0).reshape(2, 6)
    layer.scores.assign(rows)
    np.testing.assert_allclose(to_numpy(layer.importance()), rows.mean(axis=0))


def test_the_llama_export_refuses_them():
    from keras_idea.errors import ExportRefused
    from keras_idea.export import export_preset

    shape = {"vocabulary_size": 16, "model_dim": 8, "num_layers": 1, "num_heads": 2}
    config = ki.models.DecoderConfig(**shape, hidden_dim=8, sequence_length=8)
    model = ki.models.decoder(config, ffn=ki.UngatedFFN)
    with pytest.raises(ExportRefused, match="no decoder that a KerasHub Llama3 equals"):
        export_preset(model, "nowhere")
