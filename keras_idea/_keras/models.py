"""What a model knows of how it was made and compiled."""

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

# `Functional` is public only as what `keras.Model(inputs, outputs)` makes.
from keras.src.models.functional import Functional, functional_like_constructor
from keras.src.saving.serialization_lib import SafeModeScope


def compilation(model: keras.Model) -> object:
    """An object that stands for the last `compile`, or None.

    Each makes a new one, also where optimizer and loss stay. Seen with Keras 3.15.1.
    """
    return getattr(model, "_compile_config", None)


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """The arguments that a compiled model was compiled with.

    `get_compile_config` gives them as JSON would hold them, in which plain functions
    are not callable. Seen with Keras 3.15.1.
    """
    return dict(model._compile_config.config)


def made_of_tensors(cls: type[keras.Model]) -> bool:
    """Whether a class is constructed as `keras.Model(inputs, outputs, name=name)` is.

    `keras.models.clone_model` asks the same. Seen with Keras 3.15.1.
    """
    return functional_like_constructor(cls)


def trusted_configs() -> contextlib.AbstractContextManager[None]:
    """A scope in which a config may hold code, as one of a layer here does.

    Keras's own switch would stay on.
    """
    return SafeModeScope(False)


def renew_state(model: keras.Model) -> None:
    """Has a `fit` on jax know the values of a model whose variables are others now.

    The model is in sync. If the next step fails, as it is traced, Keras puts back the
    values that the last one has left, of the variables that there were then: that error
    would hide the first.
    """
    if getattr(model, "_jax_state", None):
        names = list(model._jax_state)
        values = model._get_jax_state(**dict.fromkeys(names, True))
        model._jax_state = dict(zip(names, values, strict=True))


def make_train_function(model: keras.Model) -> None:
    """Makes a model's train function anew, one that shares no trace with another.

    `make_train_function(force=True)` alone does not do: jax takes equal functions for
    one, bound methods of one object are equal, and so it would find what it traced
    for another set of variables. Seen with Keras 3.15.1, jax 0.10.2.
    """
    step = functools.partial(model.train_step)
    with instead(model, "train_step", step):
        model.make_train_function(force=True)


def owner_of_train_function(model: keras.Model) -> Any:
    """The object whose method is in place of a model's train function, or None."""
    return getattr(getattr(model, "train_function", None), "__self__", None)


def has_own_train_step(model: keras.Model) -> bool:
    """Whether a model's train step is neither Keras's nor KerasHub's.

    Theirs apply the optimizer once for each batch.
    """
    step = vars(model).get("train_step", type(model).train_step)
    module = getattr(_original(step), "__module__", "")
    return module.partition(".")[0] not in ("keras", "keras_hub")


def _original(step: Any) -> Any:
    while isinstance(step, functools.partial):
        step = step.args[0] if step.args else step.func
    return step


def graph_of(model: Any) -> Any:
    """The functional model that is, or computes, a layer; None if there is none."""
    graph = getattr(model, "_functional", model)  # a Sequential's own
    return graph if isinstance(graph, Functional) else None


def calls_in(model: keras.Model) -> list[tuple[Any, Any, Any]]:
    """Each call of a functional model's graph, or a Sequential's, in its order.

    (Layer, what it was called on, what came out: lists.) A layer of it may have been
    called in other graphs too. Seen with Keras 3.15.1.
    """
    nodes = nodes_of(getattr(model, "_functional", model))
    return [(node.operation, node.input_tensors, node.outputs) for node in nodes]


def renew_shapes(
    model: keras.layers.Layer,
    known: Mapping[keras.layers.Layer, Sequence[keras.KerasTensor]] | None = None,
) -> None:
    """Computes the shapes in a functional model's graph again, as `summary` shows them.

    Of any other layer there is no graph. `known`: what layers return, where it was
    seen: for them JAX and TensorFlow would compute with the values that the variables
    still have. Seen with Keras 3.15.1.
    """
    graph = graph_of(model)
    if graph is None:
        return
    for node in nodes_of(graph):
        given, new = node.arguments, (known or {}).get(node.operation, ())
        if len(new) == len(node.outputs):  # it was called once
            for tensor, spec in zip(node.outputs, new, strict=True):
                sizes = zip(tensor.shape, spec.shape, strict=True)
                tensor._shape = tuple(old and size for old, size in sizes)
            continue
        new = node.operation.compute_output_spec(*given.args, **given.kwargs)
        for tensor, spec in zip(node.outputs, keras.tree.flatten(new), strict=True):
            tensor._shape = spec.shape


def nodes_of(graph: Any) -> list[Any]:
    """The calls of a graph, as Keras notes them, in their order."""
    return [
        node
        for depth in sorted(graph._nodes_by_depth, reverse=True)
        for node in graph._nodes_by_depth[depth]
        if not node.is_input
    ]


@contextlib.contextmanager
def instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A scope in which a model, class or module has another attribute."""
    held, own = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if held:
            setattr(owner, name, own)
        else:
            delattr(owner, name)


# Two scopes at once would each put back what the other has set.
_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def instead_here(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`instead` of a function that all threads call, for the thread of the scope.

    The workers of a `PyDataset` may call layers at any time.
    """
    thread, before = threading.get_ident(), getattr(owner, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        here = threading.get_ident() == thread
        return (value if here else before)(*args, **kwargs)

    with _ONE_AT_A_TIME, instead(owner, name, called):
        yield
