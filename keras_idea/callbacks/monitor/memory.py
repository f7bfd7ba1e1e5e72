"""How much memory a run takes, where the system or the backend tells."""

import sys
from collections.abc import Iterable
from types import ModuleType

import keras

from keras_idea.extras import require


def host_memory() -> int:
    """Bytes of this process in the host's memory now."""
    psutil = require("psutil", "Logging to TensorBoard", "tensorboard")
    return psutil.Process().memory_info().rss


def device_memory() -> int | None:
    """Bytes taken now on all devices of the backend.

    None: there is no accelerator, or it does not tell.
    """
    name = keras.backend.backend()
    # Imported by Keras; not imported here, so that no other backend is needed.
    backend = sys.modules.get(name)
    return _DEVICES[name](backend) if name in _DEVICES and backend else None


def _jax(jax: ModuleType) -> int | None:
    stats = [device.memory_stats() for device in jax.local_devices()]
    return _total([entry and entry.get("bytes_in_use") for entry in stats])


def _torch(torch: ModuleType) -> int | None:
    if not torch.cuda.is_available():
        return None
    devices = range(torch.cuda.device_count())
    return _total([torch.cuda.memory_allocated(device) for device in devices])


def _tensorflow(tf: ModuleType) -> int | None:
    gpus = tf.config.list_logical_devices("GPU")
    return _total(
        [
            tf.config.experimental.get_memory_info(gpu.name.removeprefix("/device:"))[
                "current"
            ]
            for gpu in gpus
        ]
    )


def _total(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


_DEVICES = {"jax": _jax, "torch": _torch, "tensorflow": _tensorflow}
