"""What a compiler says of a run's train step, for devices that need not be there."""

import dataclasses
import re
from collections import Counter
from typing import Any

import keras

from keras_idea.distribution import kernel_layouts
from keras_idea.errors import ConfigError
from keras_idea.extras import require
from keras_idea.keras_private.optimizer_variables import build_without_values
from keras_idea.runs.compiling import cross_entropy, make_optimizer
from keras_idea.runs.config import RunConfig
from keras_idea.runs.outlines import Outlines
from keras_idea.runs.targets import Target

#: Of deeper models two shallow ones are compiled: what a step takes is linear in depth.
_DEEPEST = 8
_SHALLOW = (2, 4)
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A compiled train step, of one device.

    Attributes:
        arguments: int, bytes of weights, optimizer and batch.
        peak: int, bytes at most, the arguments among them.
        collectives: dict of the kind of a collective operation to how many there are.
        scaled: bool, whether it is worked out from shallower models' steps.
    """

    arguments: int
    peak: int
    collectives: dict[str, int]
    scaled: bool = False

    @classmethod
    def at_depth(
        cls, few: "CompiledStep", more: "CompiledStep", blocks: float
    ) -> "CompiledStep":
        """The step of a deeper model, from two of fewer layers.

        Args:
            few: `CompiledStep` of the shallowest.
            more: `CompiledStep` of a deeper one.
            blocks: float, by how many times `more - few` it is deeper than `few`.

        Returns:
            `CompiledStep`, `few + blocks (more - few)`.
        """

        def along(low: int, high: int) -> int:
            return round(low + blocks * (high - low))

        kinds = {
            kind: along(few.collectives.get(kind, 0), count)
            for kind, count in more.collectives.items()
        }
        arguments = along(few.arguments, more.arguments)
        return cls(arguments, along(few.peak, more.peak), kinds, scaled=True)


def compiled_step(
    config: RunConfig,
    outline: Outlines,
    width: int,
    target: Target | None = None,
) -> CompiledStep:
    """Compiles a train step of a run's model, from shapes alone; on jax.

    A step without the pruning and without a teacher.

    Args:
        config: `RunConfig`.
        outline: `Outlines` of the run's models.
        width: int, neurons of each FFN.
        target: `Target`, TPUs; None: the devices of this process.

    Returns:
        `CompiledStep`.

    Raises:
        ConfigError: if the devices are not as many as the mesh's, or the backend is
            another.
        MissingPackage: if libtpu is not installed.
    """
    if keras.backend.backend() != "jax":
        raise ConfigError(
            "A compiler is asked on jax alone. Set KERAS_BACKEND=jax, or leave "
            "--compile out: what is exact is told all the same."
        )
    import jax

    rows, parts = config.distribution.size
    mesh = jax.sharding.Mesh(_devices(target, rows, parts), ("data", "model"))
    depth = outline.num_layers
    if depth is None or depth <= _DEEPEST:
        return _compile(config, outline.make(width, None), mesh)
    few, more = (
        _compile(config, outline.make(width, layers), mesh) for layers in _SHALLOW
    )
    low, high = _SHALLOW
    return CompiledStep.at_depth(few, more, (depth - low) / (high - low))


def _compile(config: RunConfig, model: keras.Model, mesh: Any) -> CompiledStep:
    import jax

    parts = config.distribution.size[1]
    optimizer = make_optimizer(config)
    keras.Model.compile(model, optimizer, cross_entropy())
    build_without_values(optimizer, model.trainable_variables)
    layouts = kernel_layouts(model, parts) if parts > 1 else {}
    names = {path.replace("/", "_"): axes for path, axes in layouts.items()}

    def spec(variable: keras.Variable) -> Any:
        # A slot has the path of its variable in its name.
        own = variable.path.rpartition("/")[2]
        slot = next((axes for name, axes in names.items() if own.startswith(name)), ())
        axes = layouts.get(variable.path, slot)
        if len(axes) != len(variable.shape):
            axes = ()
        return _spec(jax, mesh, tuple(variable.shape), variable.dtype, axes)

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([spec(variable) for variable in group] for group in groups)
    size = config.data.batch_size // config.micro_batches
    shape = (size, config.model.sequence_length)
    ids = _spec(jax, mesh, shape, "int32", ("data", None))
    inputs = getattr(model, "input", None)
    x = {name: ids for name in inputs} if isinstance(inputs, dict) else ids
    lowered = jax.jit(model.train_step, donate_argnums=0).lower(state, (x, ids))
    compiled = lowered.compile()
    memory: Any = compiled.memory_analysis()
    peak = (
        memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
    )
    kinds = re.findall(
        rf" ({'|'.join(_COLLECTIVES)})(?:-start)?\(", str(compiled.as_text())
    )
    return CompiledStep(memory.argument_size_in_bytes, peak, dict(Counter(kinds)))


def _devices(target: Target | None, rows: int, parts: int) -> Any:
    import jax
    import numpy as np

    devices: Any = jax.devices()
    if target is not None:
        require("libtpu", "Compiling for a TPU that is not there", "tpu")
        from jax.experimental import topologies

        devices = topologies.get_topology_desc(target.name, platform="tpu").devices
    if len(devices) != rows * parts:
        raise ConfigError(
            f"The mesh has {rows} x {parts} = {rows * parts} places, and there are "
            f"{len(devices)} devices. Give --devices DATAxMODEL."
        )
    return np.array(devices).reshape(rows, parts)


def _spec(jax: Any, mesh: Any, shape: tuple[int, ...], dtype: str, axes: tuple) -> Any:
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
