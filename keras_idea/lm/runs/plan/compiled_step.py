"""What a compiler says of a run's train step, for devices that need not be there."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.errors import ConfigError
from keras_idea.keras_private.optimizer_variables import build_without_values
from keras_idea.lm.distribution import kernel_layouts
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.compiling import cross_entropy, make_optimizer
from keras_idea.lm.runs.models.outlines import Outlines
from keras_idea.lm.runs.plan.target_devices import Target
from keras_idea.validation import plural, require

_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """A compiled train step, of one device."""

    arguments: int  # bytes of weights, optimizer and batch
    peak: int  # bytes at most, the arguments among them
    collectives: dict[str, int]  # operations by their kind


def compiled_steps(
    config: RunConfig,
    outline: Outlines,
    sizes: Sequence[Sizes],
    target: Target | None = None,
) -> dict[Sizes, CompiledStep]:
    """Compiles train steps of a run's models, from shapes alone; on jax.

    A step without the pruning and without a teacher, for the target's TPUs or the
    devices of this process. The compiler is asked to make little effort: of a 2.8B
    model for 256 TPUs that takes 44 seconds instead of 167, and the bytes differ by
    0.1 %.

    Raises:
        ConfigError: if the devices are not as many as the mesh's, or the backend is
            another.
    """
    if keras.backend.backend() != "jax":
        raise ConfigError(
            "A compiler is asked on jax alone. Set KERAS_BACKEND=jax, or leave "
            "--compile out: what is exact is told all the same."
        )
    import jax

    rows, parts = config.distribution.size
    mesh = jax.sharding.Mesh(_devices(target, rows, parts), ("data", "model"))

    name = "jax_exec_time_optimization_effort"
    effort = getattr(jax.config, name)
    jax.config.update(name, -1.0)
    try:
        return {each: _compile(config, outline.make(each), mesh) for each in sizes}
    finally:
        jax.config.update(name, effort)


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
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ConfigError(
            f"The compiler finds no room for a step on these devices: {error} Use more "
            "devices along the model axis, or set `run.rematerialize` or "
            "`optimizer.gradient_accumulation_steps`."
        ) from None
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
            f"The mesh has {rows} × {parts} = {rows * parts} places, but there "
            f"{'is' if len(devices) == 1 else 'are'} "
            f"{plural(len(devices), 'device')}. Give --devices DATAxMODEL."
        )
    return np.array(devices).reshape(rows, parts)


def _spec(jax: Any, mesh: Any, shape: tuple[int, ...], dtype: str, axes: tuple) -> Any:
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
