"""KerasHub's models, trained a step and compared."""

import functools
import types

import keras
import numpy as np

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_gradients import sliced


def logits(model, x):
    """All outputs of a model in one array."""
    outputs = keras.tree.flatten(model(x, training=False))
    return np.concatenate([np.ravel(to_numpy(o)) for o in outputs])


def compiled(model, optimizer):
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=None,
        sampler="greedy",
    )
    return model


def adamw():
    # Epsilon is large, so that Adam does not blow float32 noise in the tiniest
    # gradients up.
    return keras.optimizers.AdamW(0.002, epsilon=1e-4)


def sgd():
    return keras.optimizers.SGD(0.02, momentum=0.9)


def step(model, data):
    """One train step, by `fit`: on jax `train_on_batch` is another program."""
    if keras.backend.backend() == "torch":
        # KerasHub's SmolLM3 and T5 give two variables one path, and Keras on torch,
        # which goes by paths, then never sets the gradients of one of them back.
        for variable in model.variables:
            variable.value.grad = None
    return model.fit(*data, **FIT).history["loss"]


def _held(ffn):
    """The variables of an FFN's layer, without those of FFNs in it."""
    return [cut.variable for cut in ffn.cuts()]


def compare_after_a_step(masked, narrow, data, packing=""):
    """Pairs (sliced variable of the masked model, variable of the narrow one)."""
    losses = [step(model, data) for model in (masked, narrow)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    ffns = ki.find_ffns(masked)
    kept = {id(v): f.kept_neurons() for f in ffns for v in _held(f)}
    states = {id(v) for f in ffns for v in f.state.variables}
    wide = [v for v in masked.variables if id(v) not in states]
    pairs = []
    for old, new in zip(wide, narrow.variables, strict=True):
        value = to_numpy(old)
        for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)):
            if a != b:
                value = sliced(value, kept[id(old)], axis, packing)
        pairs.append((value, to_numpy(new)))
    return pairs


SIZE = 4
FIT = {"batch_size": SIZE, "shuffle": False, "verbose": 0}


def foreign(model):
    """What of this package can be reached from a model, and by which way."""
    found, seen, left = [], {}, [("model", model)]
    while left:
        way, item = left.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType)):
            continue
        seen[id(item)] = item
        if "keras_idea" in map(_root, [item, *type(item).__mro__]):
            found.append(way)
        left += [(f"{way}.{name}", part) for name, part in _parts(item)]
    return found


def _parts(item):
    """List of (name, what an object holds)."""
    parts = []
    if isinstance(item, dict):
        parts += [("key", key) for key in item]
        parts += [(repr(key), value) for key, value in item.items()]
    elif isinstance(item, (list, tuple, set, frozenset)):
        parts += [(str(i), part) for i, part in enumerate(item)]
    elif isinstance(item, functools.partial):
        parts += [("func", item.func), ("args", item.args), ("kw", item.keywords)]
    elif isinstance(item, types.MethodType):
        parts += [("self", item.__self__), ("func", item.__func__)]
    elif isinstance(item, types.FunctionType):
        parts += [("cell", c.cell_contents) for c in item.__closure__ or ()]
    if _root(type(item)) in ("keras", "keras_hub", "keras_idea"):
        parts += list(getattr(item, "__dict__", {}).items())
    return parts


def _root(item):
    return str(getattr(item, "__module__", "")).split(".")[0]
