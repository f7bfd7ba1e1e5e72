"""KerasHub's models, trained a step and compared."""

import functools
import types

import keras
import numpy as np

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.masks import prune_by_hand


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


def prune_at_random(model, target, seed=0):
    """Leaves another random choice of neurons in each FFN (in each expert)."""
    rng = np.random.default_rng(seed)
    for ffn in ki.find_ffns(model):
        order = rng.random(tuple(ffn.mask.shape)).argsort(axis=-1)
        prune_by_hand(ffn, order < target)


def used(ffn):
    """Where the neurons of an FFN have a weight other than zero.

    Returns:
        list of bool arrays of the mask's shape: of each matrix, then of each bias.
    """
    found = []
    for cut in ffn.cuts():
        value = np.moveaxis(to_numpy(cut.variable), cut.axis, -1)
        experts = 1 if cut.experts is None else len(value)
        value = value.reshape(experts, -1, value.shape[-1])
        found += [np.any(value[..., part] != 0, axis=1) for part in cut.places.T]
    return [part if part.shape[0] > 1 else part[0] for part in found]


SIZE = 4
FIT = {"batch_size": SIZE, "shuffle": False, "verbose": 0}


def foreign(model, *but):
    """What of this package can be reached from a model, and by which way.

    Args:
        model: a Keras model.
        but: objects that are not looked into.
    """
    found, seen, left = [], {id(item): item for item in but}, [("model", model)]
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
