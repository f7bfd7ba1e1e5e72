"""Initial values at the map's scale."""

import keras
import numpy as np
import pytest

from benchmarks.paper.build import new_model
from benchmarks.paper.initial import initialise
from benchmarks.paper.scale import SCALES

SCALE = SCALES["map"]


def initialised(scale, width, seed=3):
    keras.utils.set_random_seed(seed)
    model = new_model(scale, width)
    initialise(model, scale, seed)
    return {v.path: keras.ops.convert_to_numpy(v) for v in model.trainable_variables}


def test_the_narrow_model_is_a_part_of_the_wide_one():
    narrow, wide = (initialised(SCALE, width) for width in (64, 171))
    for path, values in narrow.items():
        other = wide[path]
        if not path.endswith("_kernel"):
            np.testing.assert_array_equal(values, other)
            continue
        # Glorot's bounds: the root of 6 / (inputs + outputs).
        bounds = [np.sqrt(6 / (24 + width)) for width in (64, 171)]
        part = other[:, :64] if values.shape == (24, 64) else other[:64]
        np.testing.assert_allclose(values / bounds[0], part / bounds[1], rtol=1e-5)
        for drawn, bound in zip((values, other), bounds, strict=True):
            assert 0.98 * bound < np.abs(drawn).max() <= bound * (1 + 1e-6)
    kernels = [path for path in narrow if path.endswith("_kernel")]
    assert len(kernels) == 6
    assert len({narrow[path].ravel()[1] for path in kernels}) == 6
    assert narrow["token_embedding/embeddings"].std() == pytest.approx(0.5, rel=0.05)


def test_another_scale_keeps_keras_own_values():
    scale = SCALES["tiny"]
    found = initialised(scale, 192)
    keras.utils.set_random_seed(3)
    model = new_model(scale, 192)
    for variable in model.trainable_variables:
        expected = keras.ops.convert_to_numpy(variable)
        np.testing.assert_array_equal(found[variable.path], expected)
