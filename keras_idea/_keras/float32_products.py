"""Matrix products of float32 in float32, where a device has a coarser one."""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def float32_products() -> Iterator[None]:
    """A scope whose eager matrix products of float32 are not computed in TF32.

    GPUs since Ampere multiply in TF32, of 10 bits, by default on JAX and TensorFlow: on
    an H200, a Gram matrix on JAX was 1e-4 of its size away (PyTorch's: 3e-7).
    """
    if keras.backend.backend() == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    elif keras.backend.backend() == "tensorflow":
        from tensorflow.config import experimental as of_tensorflow

        before = of_tensorflow.tensor_float_32_execution_enabled()
        of_tensorflow.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            of_tensorflow.enable_tensor_float_32_execution(before)
    else:
        import torch

        before = []
        for part in (torch.backends.cuda.matmul, torch.backends.cudnn):
            with contextlib.suppress(RuntimeError):  # `fp32_precision` is in use
                before.append((part, part.allow_tf32))
        try:
            for part, _ in before:
                part.allow_tf32 = False
            yield
        finally:
            for part, allowed in before:
                part.allow_tf32 = allowed
