"""A forward pass that ends early, and one that continues from there.

The graph of a functional model is a list of calls. Where a pass ends within one of
them, that call and those after it have yet to be made: what they read is kept, off the
device, and the next pass over the same inputs begins with them. It does so in models
within models, too. Seen with Keras 3.15.1.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops
from keras.src.backend.common.masking import set_keras_mask

from keras_idea._keras.layers import mask_of
from keras_idea._keras.models import Functional, instead, nodes_of


class PassEnd(BaseException):
    """Ends a forward pass from within: no error, which Keras would word anew."""


class _Kept(NamedTuple):
    """Where a pass ended in a graph, and what is still to be read of what it made.

    Attributes:
        place: int, of the call in which it ended.
        objects: dict, `id` of a tensor of the graph -> that of its value. Two may have
            one: a layer that takes the mask off its input takes it off both.
        values: dict, `id` of a value -> itself and its mask, before that call. What the
            model is called on is None: it is given again.
    """

    place: int
    objects: dict[int, int]
    values: dict[int, tuple[Any, Any]]


#: What passes over the same inputs leave, for each model that they ended in.
Kept: TypeAlias = dict[Functional, _Kept]


@contextlib.contextmanager
def resuming(model: keras.layers.Layer, kept: Kept) -> Iterator[None]:
    """A scope in which a pass begins where the last one ended.

    `kept` is what the passes over these inputs have left, empty at first. Whatever was
    called before in a functional model must give what it gave then. A layer with code
    of its own is called from its beginning.
    """
    graphs = [getattr(part, "_functional", part) for part in model._flatten_layers()]
    with contextlib.ExitStack() as changes:
        for graph in dict.fromkeys(graphs):
            if isinstance(graph, Functional):
                run = functools.partial(_run, graph, graph._run_through_graph, kept)
                changes.enter_context(instead(graph, "_run_through_graph", run))
        yield


def _run(
    graph: Functional,
    run_whole: Callable[..., Any],
    kept: Kept,
    inputs: Any,
    operation_fn: Callable[[Any], Callable[..., Any]],
) -> Any:
    """Runs a graph without the calls that were made before."""
    nodes = nodes_of(graph)
    places = iter(range(len(nodes)))
    given = map(id, graph.inputs)
    values = dict(zip(given, keras.tree.flatten(inputs), strict=True))
    begin = _restore(kept.pop(graph), values) if graph in kept else 0

    def call_or_kept(operation: Any) -> Callable[..., Any]:
        place = next(places)  # Keras asks for the operations in this order

        def call(*args: Any, **kwargs: Any) -> Any:
            made = list(map(id, nodes[place].outputs))
            if place < begin:
                return [values.get(tensor) for tensor in made]
            masks = {tensor: mask_of(value) for tensor, value in values.items()}
            try:
                outputs = operation_fn(operation)(*args, **kwargs)
            except PassEnd:
                kept[graph] = _to_keep(graph, place, values, masks)
                raise
            values.update(zip(made, keras.tree.flatten(outputs), strict=False))
            return outputs

        return call

    return run_whole(inputs, operation_fn=call_or_kept)


def _to_keep(
    graph: Functional, place: int, values: dict[int, Any], masks: dict[int, Any]
) -> _Kept:
    left = nodes_of(graph)[place:]
    read = {id(tensor) for node in left for tensor in node.input_tensors}
    given = set(map(id, graph.inputs))
    wanted = given | read | set(map(id, graph.outputs))
    objects = {
        tensor: id(value) for tensor, value in values.items() if tensor in wanted
    }
    away: dict[int, tuple[Any, Any]] = {}
    for tensor, value in objects.items():  # those that are given come first
        if value not in away:
            off = None if tensor in given else _off_device(values[tensor])
            away[value] = off, _off_device(masks[tensor])
    return _Kept(place, objects, away)


def _restore(kept: _Kept, values: dict[int, Any]) -> int:
    """Adds what was kept to the inputs that a model is called on; where to begin."""
    present = {kept.objects[tensor]: value for tensor, value in values.items()}
    for key, (value, mask) in kept.values.items():
        present.setdefault(key, _on_device(value))
        if ops.is_tensor(present[key]):
            set_keras_mask(present[key], _on_device(mask))
    values.update({tensor: present[key] for tensor, key in kept.objects.items()})
    return kept.place


def _off_device(value: Any) -> Any:
    """A tensor in the host's memory; what is not dense as it is."""
    dense = isinstance(value, type(ops.zeros(())))
    return ops.convert_to_numpy(value) if dense else value


def _on_device(value: Any) -> Any:
    return ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
