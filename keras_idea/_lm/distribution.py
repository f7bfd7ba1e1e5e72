"""The devices and processes of a run: a `keras.distribution`, and who reads what."""

import contextlib
import pathlib
import time
from typing import Any, TypeAlias

import keras

from keras_idea import _processes as processes
from keras_idea._files import json_digest
from keras_idea.errors import ConfigError

Distribution: TypeAlias = (
    keras.distribution.DataParallel | keras.distribution.ModelParallel
)
# Seconds that a network's file system may need to show a new file everywhere.
_DELAY = 30


def join(data: int, model: int, config: str) -> None:
    """Joins the processes of a run, before anything is computed."""
    if data * model == 1:
        if processes.announced():  # each would do the whole run, in one folder
            raise ConfigError(
                "KERAS_DISTRIBUTION_NUM_PROCESSES announces several processes, and the "
                "run has one device. Set `distribution.data`, or unset the variable."
            )
        return
    if keras.backend.backend() != "jax":
        raise ConfigError(
            "`[distribution]` needs jax. Received: the backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=jax, or see "
            "docs/guides/many_devices.py."
        )
    processes.join()
    # All processes exchange their devices here, while they are at one place.
    keras.distribution.list_devices()
    processes.check_same({"the config": json_digest(config)})


def distribution_of(data: int, model: int, backbone: Any = None) -> Distribution | None:
    """Makes the `keras.distribution` of a run; None if it has one device."""
    if data * model == 1:
        return None
    devices = keras.distribution.list_devices()
    if len(devices) != data * model:
        raise ConfigError(
            f"`[distribution]` needs {data} × {model} devices. Received: "
            f"{len(devices)}, of all processes together. Set `data` and `model`, or "
            "start as many processes as they need."
        )
    if model == 1:
        mesh = keras.distribution.DeviceMesh((data,), ("data",), devices)
        return keras.distribution.DataParallel(mesh, auto_shard_dataset=False)
    layout = getattr(backbone, "get_layout_map", None)
    if layout is None:
        raise ConfigError(
            "`distribution.model` needs a KerasHub family with a layout map, such as "
            f"Llama 3 or Gemma. Received: {model}. Use `distribution.data`."
        )
    mesh = keras.distribution.DeviceMesh((data, model), ("data", "model"), devices)
    return keras.distribution.ModelParallel(
        layout_map=layout(mesh, "model", "data"),
        batch_dim_name="data",
        auto_shard_dataset=False,
    )


def scope(distribution: Distribution | None) -> contextlib.AbstractContextManager:
    """The scope in which models are made and trained on the run's devices."""
    return contextlib.nullcontext() if distribution is None else distribution.scope()


def share_of(distribution: Distribution | None) -> tuple[int, int]:
    """Says which equal part of a batch this process reads: its number, and how many.

    Processes that share a place on the data axis read the same rows.
    """
    if distribution is None:
        return 0, 1
    devices = distribution.device_mesh.backend_mesh.devices
    places = devices.reshape(devices.shape[0], -1)
    own = [
        place
        for place, here in enumerate(places)
        if any(device.process_index == processes.index() for device in here)
    ]
    return min(own) // len(own), len(places) // len(own)


def check_shared(file: pathlib.Path) -> None:
    """Rejects a folder that not all processes see; the first has written `file`."""

    def look() -> None:
        until = time.monotonic() + _DELAY
        while not file.is_file():
            if time.monotonic() > until:
                raise ConfigError(
                    f"Process 0 has written {str(file)!r}, which this process does not "
                    "see. Give all processes one shared folder (--output)."
                )
            time.sleep(0.1)

    if processes.count() > 1:
        processes.on_each(look)
