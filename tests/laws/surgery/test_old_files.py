"""Files of the first format, in which the layers carried their pruning themselves.

`files/format_1` was made by the package at 3666e42 (keras 3.15.1, jax): two FFNs of 16
and 12 neurons, AdamW; "masked" stopped after 7 steps of pruning to 4 in steps 2 to 14,
"narrow" pruned and compacted in `fit`; what they answered is beside them.
"""

import shutil

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import SUPPORT
from tests.support.helpers import residual_model, to_numpy
from tests.support.older_keras import needs_3_15

FILES = SUPPORT / "files" / "format_1"


def assert_is(model, name, data):
    expected = np.load(FILES / f"{name}.npz")
    outputs = model.predict(data[0], verbose=0)
    np.testing.assert_allclose(outputs, expected["output"], atol=1e-5)
    for i, ffn in enumerate(ki.find_ffns(model)):
        np.testing.assert_array_equal(to_numpy(ffn.mask), expected[f"mask_{i}"])
        np.testing.assert_array_equal(to_numpy(ffn.scores), expected[f"scores_{i}"])
        np.testing.assert_array_equal(ffn.original_indices, expected[f"index_{i}"])


@needs_3_15
@pytest.mark.parametrize("name, steps", [("masked", 7), ("narrow", 16)])
def test_a_model(name, steps, data):
    model = keras.models.load_model(FILES / f"{name}.keras")
    assert_is(model, name, data)
    assert int(model.optimizer.iterations) == steps
    moments = [to_numpy(v) for v in model.optimizer.variables[2:]]
    assert len(moments) == 14 and all(m.any() for m in moments)
    prune = ki.IdeaPruneCallback(4, 2, 12)
    model.fit(*data, batch_size=8, epochs=1, verbose=0, callbacks=[prune])
    assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {4}


def test_weights(data):
    model = residual_model()
    model.load_weights(FILES / "masked.weights.h5")
    assert_is(model, "masked", data)


def test_checkpoints_are_refused_by_their_format(data, tmp_path):
    shutil.copytree(FILES / "checkpoints", tmp_path / "checkpoints")
    model = residual_model()
    model.compile("sgd", "mse")
    with pytest.raises(
        ValueError, match="has format 1, of an earlier .* reads 2. Finish"
    ):
        ki.Checkpoint(tmp_path / "checkpoints").restore(model)
