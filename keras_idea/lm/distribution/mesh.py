"""The mesh of a run's devices, and which rows of a batch a process reads."""

from collections.abc import Mapping
from typing import TypeAlias

import keras

from keras_idea import processes
from keras_idea.errors import ConfigError
from keras_idea.lm.distribution.layouts import MODEL
from keras_idea.validation import plural

#: The name of the mesh's axis that the rows of a batch lie along.
DATA = "data"
Distribution: TypeAlias = (
    keras.distribution.DataParallel | keras.distribution.ModelParallel
)


def distribution_of(
    data: int, model: int, layouts: Mapping[str, tuple[str | None, ...]]
) -> Distribution:
    """Makes a `keras.distribution` of all devices of all processes, on jax.

    Args:
        data: int. Devices that share the rows of a batch.
        model: int. Devices that share the kernels.
        layouts: dict. As `kernel_layouts` returns it. Not used if `model` is 1.

    Returns:
        `keras.distribution.DataParallel` or `ModelParallel`.

    Raises:
        ConfigError: If the number of devices is not `data * model`.
    """
    devices = keras.distribution.list_devices()
    if len(devices) != data * model:
        raise ConfigError(
            f"`distribution.mesh` needs {data} × {model} = "
            f"{plural(data * model, 'device')}, and the run has {len(devices)} in "
            f"{plural(processes.count(), 'process', 'processes')}. Received: "
            f"data={data}, model={model}. Set `mesh` to {{ data = "
            f"{max(1, len(devices) // model)}, model = {model} }} if that fits, or "
            "start as many processes as the mesh needs."
        )
    if model == 1:
        mesh = keras.distribution.DeviceMesh((data,), (DATA,), devices)
        return keras.distribution.DataParallel(mesh, auto_shard_dataset=False)
    mesh = keras.distribution.DeviceMesh((data, model), (DATA, MODEL), devices)
    layout_map = keras.distribution.LayoutMap(mesh)
    for path, axes in layouts.items():
        layout_map[path] = axes
    return keras.distribution.ModelParallel(
        layout_map=layout_map, batch_dim_name=DATA, auto_shard_dataset=False
    )


def local_rows(distribution: Distribution, rows: int) -> slice:
    """Returns the rows of a batch that this process passes to `fit`.

    Args:
        distribution: `Distribution`. As `distribution_of` returns it.
        rows: int. Rows of the whole batch, a multiple of the data axis.

    Returns:
        slice. Processes that share a place on the data axis read the same rows.
    """
    devices = distribution.device_mesh.backend_mesh.devices
    places = devices.reshape(devices.shape[0], -1)
    here = [
        i
        for i, place in enumerate(places)
        if any(device.process_index == processes.index() for device in place)
    ]
    each = rows // len(places)
    return slice(each * min(here), each * (max(here) + 1))
