"""A tensor that is removed from a safetensors file."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_idea.hub.hf.tensors import drop_tensor

TENSORS = {
    "first.ä": np.arange(6, dtype="float32").reshape(2, 3),
    "half": np.ones(3, "float16"),
    "large": np.arange(100_000, dtype="float32"),
    "none": np.zeros((0, 4), "float32"),
    "number": np.array(7, "float32"),
}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
@pytest.mark.parametrize("name", TENSORS)
def test_the_others_stay_as_they_are(name, metadata, tmp_path):
    file = tmp_path / "model.safetensors"
    save_file(TENSORS, file, metadata=metadata)
    size = file.stat().st_size
    drop_tensor(file, name)
    left = load_file(file)
    assert set(left) == set(TENSORS) - {name}
    for key, array in left.items():
        np.testing.assert_array_equal(array, TENSORS[key])
    assert file.stat().st_size == size - TENSORS[name].nbytes
