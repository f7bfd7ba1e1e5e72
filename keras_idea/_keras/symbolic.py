"""The operations of a model, recorded while Keras's symbolic tensors pass through it.

Keras records the calls of a functional model's outermost layers, in the layers. Here
those inside of composite layers are recorded too, and nothing is left in any layer.
Seen with Keras 3.15.1.
"""

import contextlib
import contextvars
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import keras
from keras.src.backend.common import global_state
from keras.src.layers import layer as keras_layer

from keras_idea._keras.layers import all_layers, has_call, sublayers
from keras_idea._keras.models import Functional, instead_here
from keras_idea._keras.variables import begun_as_zeros

_WITH_TABLES = (
    keras.layers.Dense,
    keras.layers.EinsumDense,
    keras.layers.Embedding,
)
#: The arguments of a call, and the named ones.
Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
#: What could not be called on the example, and what it raised.
Cause: TypeAlias = tuple[keras.Operation, Exception]
# What stands for a size that a model leaves open: the batch, any other.
_BATCH = 2
_SIZE = contextvars.ContextVar("size", default=8)


@contextlib.contextmanager
def open_sizes(size: int) -> Iterator[None]:
    """A scope in which heights, widths and lengths that a model leaves open are so."""
    token = _SIZE.set(size)
    try:
        yield
    finally:
        _SIZE.reset(token)


@dataclasses.dataclass(frozen=True)
class Call:
    """One operation that was called, often a layer, on `(args, kwargs)`."""

    operation: keras.Operation
    given: Given
    outputs: list[keras.KerasTensor]
    #: Of a layer, by the arguments' names: given, or found by Keras at the inputs.
    masks: dict[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def arguments(self) -> list[Any]:
        """List of what it was called on, flattened."""
        return keras.tree.flatten(self.given)

    @functools.cached_property
    def inputs(self) -> list[keras.KerasTensor]:
        """List of the `KerasTensor`s among the arguments, without a layer's mask."""
        args, named = self.given
        if isinstance(self.operation, keras.layers.Layer):
            named = {name: v for name, v in named.items() if name != "mask"}
        return tensors_in((args, named))

    def function(self, training: bool | None = None) -> Callable[..., Any]:
        """What it does, as a function of tensors in the place of its inputs.

        `training` is what a layer is told; None: nothing.
        """
        keys = list(map(id, self.inputs))

        def called(*tensors: Any) -> Any:
            known = dict(zip(keys, tensors, strict=True))
            args, named = keras.tree.map_structure(
                lambda leaf: known.get(id(leaf), leaf), self.given
            )
            if isinstance(self.operation, keras.layers.Layer):
                told = ("mask", "training")  # perhaps by Keras, to one without them
                named = {name: v for name, v in named.items() if name not in told}
            if training is not None:
                named["training"] = training
            return self.operation.call(*args, **named)

        return called


@dataclasses.dataclass
class Recording:
    """What was called in a layer.

    Attributes:
        calls: list of `Call`, in their order.
        inputs, outputs: lists of `KerasTensor`, what goes into the layer and comes out;
            of `holders`, into and out of what they hold.
        composites: list of `Call`, those of layers that were looked into; outputs are
            empty if that failed.
        ends: list of `KerasTensor`, what goes into and out of what could not be looked
            into, and into `add_loss`.
        opaque: dict, layers that could not be looked into -> what could not be called.
        holders: list of the layers whose `call` calls nothing that they hold, as it is
            missing or a stub: somebody else calls that.
        losing: list of the layers that add a loss.
        read: list of the variables whose values were read by another layer than their
            own, or by a composite layer's call.
    """

    calls: list[Call] = dataclasses.field(default_factory=list)
    inputs: list[keras.KerasTensor] = dataclasses.field(default_factory=list)
    outputs: list[keras.KerasTensor] = dataclasses.field(default_factory=list)
    composites: list[Call] = dataclasses.field(default_factory=list)
    ends: list[keras.KerasTensor] = dataclasses.field(default_factory=list)
    opaque: dict[keras.layers.Layer, Cause] = dataclasses.field(default_factory=dict)
    holders: list[keras.layers.Layer] = dataclasses.field(default_factory=list)
    losing: list[keras.layers.Layer] = dataclasses.field(default_factory=list)
    read: list[keras.Variable] = dataclasses.field(default_factory=list)

    @property
    def called(self) -> "dict[keras.layers.Layer, Given]":
        """Dict, each layer that was looked into -> what it was called on first."""
        first: dict[Any, Given] = {}
        for call in self.composites:
            first.setdefault(call.operation, call.given)
        return first


def record(
    layer: keras.layers.Layer,
    looked_into: Callable[[keras.layers.Layer], bool],
    training: bool = False,
) -> Recording:
    """Calls a layer on symbolic tensors, and records the operations.

    No variable changes. A layer of which `looked_into` says no is one operation. So is
    what cannot be called so, or whose `call` calls nothing that it holds; but what that
    holds is looked into by itself if it is known what it was called on.
    """
    recording = Recording()
    seen: set[keras.layers.Layer] = set()
    todo, models = [layer], {layer}
    recorded = _recorded(recording, looked_into)
    with keras.StatelessScope(), begun_as_zeros(layer.variables), recorded:
        while todo:
            begun = todo.pop()
            _begin(begun, recording, training, begun in models)
            if _calls_nothing(begun, recording):
                recording.opaque.pop(begun, None)
                recording.holders.append(begun)
                models.update(sublayers(begun))
            for apart in (*recording.opaque, *recording.holders):
                if apart not in seen:
                    seen.add(apart)
                    todo += [part for part in sublayers(apart) if looked_into(part)]
    return recording


def call_like(
    layer: keras.layers.Layer, known: keras.layers.Layer, given: Given | None = None
) -> None:
    """Builds a layer by a symbolic call, as a functional model would make one.

    On tensors like those that the built layer `known` was `given`, or of the shapes
    that it was built for; a ValueError where these are not known.
    """
    arguments, named = given or example_of(known)
    layer(*_all_fresh(arguments), **_all_fresh(named))


def _all_fresh(structure: Any) -> Any:
    return keras.tree.map_structure(
        lambda leaf: _fresh(leaf) if isinstance(leaf, keras.KerasTensor) else leaf,
        structure,
        none_is_leaf=True,
    )


def _calls_nothing(layer: keras.layers.Layer, recording: Recording) -> bool:
    """Whether a layer's `call` is missing, or a stub: `return x`, for one."""
    if layer in recording.opaque:
        _, error = recording.opaque[layer]
        return not has_call(layer) or isinstance(error, NotImplementedError)
    calls = [*recording.calls, *recording.composites]
    called = {id(call.operation) for call in calls}
    held = [part for part in all_layers(layer) if part is not layer]
    return bool(held) and called.isdisjoint(map(id, held))


def _begin(
    layer: keras.layers.Layer, recording: Recording, training: bool, whole: bool
) -> None:
    """Records a call of a layer on what it was built for, if that is known.

    `whole`: somebody outside calls it, and it is not looked into in another's place.
    """
    try:
        arguments, named = example_of(layer)
        if training and layer._call_has_training_arg:
            named = {**named, "training": True}
        outputs = layer(*arguments, **named)
    # Whatever a layer's own code raises for tensors without numbers.
    except Exception as error:
        recording.opaque.setdefault(layer, (layer, error))
        return
    inputs, outputs = tensors_in((arguments, named)), tensors_in(outputs)
    if whole:
        recording.inputs += inputs
        recording.outputs += outputs
    else:
        recording.ends += [*inputs, *outputs]


def example_of(layer: keras.layers.Layer) -> tuple[tuple, dict[str, Any]]:
    """Symbolic arguments like those that a layer was built for, and the named ones.

    A ValueError where these are not known.
    """
    graph = getattr(layer, "_functional", layer)  # a Sequential's own
    if isinstance(graph, Functional):
        return (keras.tree.map_structure(_fresh, graph._inputs_struct),), {}
    shapes = layer._build_shapes_dict
    if not shapes:
        raise ValueError("it is not known what it is called on")
    if len(shapes) == 1:
        (shape,) = shapes.values()
        sizes = getattr(layer, "state_size", None)  # of a recurrent cell
        states = [_of_shape((None, size)) for size in keras.tree.flatten(sizes)]
        return (_of_shape(shape), *([states] if sizes is not None else [])), {}
    return (), {
        name.removesuffix("_shape"): _of_shape(shape) for name, shape in shapes.items()
    }


def _of_shape(shape: Any) -> Any:
    if shape is None:  # of a call that failed
        raise ValueError("it is not known what it is called on")
    if isinstance(shape, dict):
        return {name: _of_shape(part) for name, part in shape.items()}
    if shape and not isinstance(shape[0], (int, type(None))):
        return [_of_shape(part) for part in shape]
    return _fresh(keras.KerasTensor(tuple(shape)))


def _fresh(tensor: keras.KerasTensor) -> keras.KerasTensor:
    shape = [
        (_SIZE.get() if place else _BATCH) if size is None else size
        for place, size in enumerate(tensor.shape)
    ]
    return keras.KerasTensor(shape, tensor.dtype)


def _noted_outputs(operation: keras.Operation, given: list[keras.KerasTensor]) -> Any:
    """What a functional model's graph says that an operation makes of such tensors.

    Of one that cannot be called on the sizes that stand for open ones; None: no graph
    has it, or on others.
    """
    for node in operation._inbound_nodes:
        noted = [(len(t.shape), t.shape[-1:]) for t in node.input_tensors]
        if noted == [(len(t.shape), t.shape[-1:]) for t in given]:
            made = [_fresh(tensor) for tensor in node.outputs]
            return made[0] if len(made) == 1 else made
    return None


def _with_sizes(layer: keras.layers.Layer, args: Any, made: Any) -> Any:
    """What an EinsumDense makes, with the sizes that it does not know of its input."""
    if not isinstance(layer, keras.layers.EinsumDense) or not args:
        return made
    known = zip(made.shape, args[0].shape, strict=False)
    sizes = [old if size is None else size for size, old in known]
    shape = (*sizes, *made.shape[len(sizes) :])
    return keras.KerasTensor(shape, made.dtype)


def _symbolic(leaf: Any) -> Any:
    """A symbolic tensor in the place of one with values; anything else as it is."""
    if isinstance(leaf, keras.KerasTensor) or not keras.ops.is_tensor(leaf):
        return leaf
    return keras.KerasTensor(leaf.shape, keras.backend.standardize_dtype(leaf.dtype))


def tensors_in(structure: Any) -> list[keras.KerasTensor]:
    """List of the `KerasTensor`s in a structure, which may hold None too."""
    leaves = keras.tree.flatten(structure)
    return [leaf for leaf in leaves if isinstance(leaf, keras.KerasTensor)]


@contextlib.contextmanager
def _recorded(
    recording: Recording, looked_into: Callable[[keras.layers.Layer], bool]
) -> Iterator[None]:
    """A scope in which symbolic calls are recorded, instead of noted in the layers."""
    entered: set[int] = set()
    own: list[set[int]] = []  # the variables of the operations under way
    named: dict[int, dict[str, Any]] = {}  # with the masks that Keras adds
    raising: list[Cause] = []  # on its way out of the layers around it
    current_value = keras.StatelessScope.get_current_value
    layer_call = keras.layers.Layer.__call__

    def get_current_value(self: keras.StatelessScope, variable: Any) -> Any:
        if not own or id(variable) not in own[-1]:
            recording.read.append(variable)
        return current_value(self, variable)

    def outputs_of(layer: keras.layers.Layer, args: Any, kwargs: Any) -> Any:
        own.append(set(map(id, layer.variables)))
        try:
            made = layer.compute_output_spec(*args, **kwargs)
            return _with_sizes(layer, args, made)
        # A layer's own rule of shapes may not know all that it is called with.
        except Exception:
            spec = functools.partial(keras.Operation.compute_output_spec, layer)
            return or_noted(layer, spec, args, kwargs)
        finally:
            own.pop()

    def or_noted(operation: Any, spec: Callable, args: Any, kwargs: Any) -> Any:
        """The outputs by a rule of shapes, or as a graph of the model has them."""
        try:
            return spec(*args, **kwargs)
        except Exception as error:
            noted = _noted_outputs(operation, tensors_in((args, kwargs)))
            if noted is None:
                raising[:] = raising or [(operation, error)]
                raise
            return noted

    def node(
        operation: keras.Operation, call_args: Any, call_kwargs: Any, outputs: Any
    ) -> None:
        for tensor in tensors_in(outputs):
            # A product with a number counts as sparse, which jax then computes.
            tensor._sparse = False
        if id(operation) not in entered or operation in recording.opaque:
            given, made = (call_args, call_kwargs), tensors_in(outputs)
            known = named.pop(id(operation), {}).items()
            masks = {name: mask for name, mask in known if name.endswith("mask")}
            recording.calls.append(Call(operation, given, made, masks))

    def symbolic_call(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        named[id(self)] = kwargs
        if not looked_into(self) or self in recording.opaque:
            return outputs_of(self, args, kwargs)
        composite, so_far = Call(self, (args, kwargs), []), len(recording.calls)
        recording.composites.append(composite)
        try:
            entered.add(id(self))
            outputs = self.call(*args, **kwargs)
            raising.clear()  # its own code has taken care of it
            composite.outputs.extend(tensors_in(outputs))
            return outputs
        # As in `_begin`.
        except Exception as error:
            del recording.calls[so_far:]
            recording.opaque[self] = raising.pop() if raising else (self, error)
            return outputs_of(self, args, kwargs)

    def call(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        # What a model holds itself, the nodes of a graph for one, is followed too.
        if not own and (looked_into(self) or isinstance(self, _WITH_TABLES)):
            args, kwargs = keras.tree.map_structure(_symbolic, (args, kwargs))
        return layer_call(self, *args, **kwargs)

    def add_loss(self: keras.layers.Layer, loss: Any) -> None:
        # Keras's own refuses tensors without numbers.
        recording.ends += tensors_in(loss)
        recording.losing.append(self)

    def operate(self: keras.Operation, *args: Any, **kwargs: Any) -> Any:
        outputs = or_noted(self, self.compute_output_spec, args, kwargs)
        node(self, args, kwargs, outputs)
        return outputs

    # With it jax takes the sum of an array and a symbolic tensor for its own.
    as_array = vars(keras.KerasTensor).get("__jax_array__")
    # Operations get names too, which layers that are made later would miss.
    names = global_state.get_global_attribute("object_name_uids")
    before = dict(names or {})
    try:
        if as_array is not None:
            del keras.KerasTensor.__jax_array__
        with (
            warnings.catch_warnings(action="ignore"),
            instead_here(keras_layer, "Node", node),
            instead_here(keras.Operation, "symbolic_call", operate),
            instead_here(keras.layers.Layer, "__call__", call),
            instead_here(keras.layers.Layer, "symbolic_call", symbolic_call),
            instead_here(keras.layers.Layer, "add_loss", add_loss),
            instead_here(keras.StatelessScope, "get_current_value", get_current_value),
        ):
            yield
    finally:
        if as_array is not None:
            keras.KerasTensor.__jax_array__ = as_array
        if names is not None:
            names.clear()
            names.update(before)
