"""A refit's products are in float32, also where a GPU would take TF32."""

import pytest


@pytest.mark.parametrize("chosen", [True, False])
def test_it_is_off_within_and_as_it_was_afterwards(chosen):
    from tensorflow.config import experimental

    from keras_idea._keras.float32_products import float32_products

    enabled = experimental.tensor_float_32_execution_enabled
    before = enabled()
    experimental.enable_tensor_float_32_execution(chosen)
    try:
        with float32_products():
            assert not enabled()
        assert enabled() == chosen
        with pytest.raises(KeyError), float32_products():
            raise KeyError
        assert enabled() == chosen
    finally:
        experimental.enable_tensor_float_32_execution(before)
