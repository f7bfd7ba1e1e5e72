"""Proof that what was timed did prune: a dead pruner would cost nothing.

Every benchmark that measures our steps asks it when the clock is off.
"""

import keras
import numpy as np

import keras_idea as ki
from keras_idea._step.pruner import pruner_of


class NotPrunedError(RuntimeError):
    """What was timed did not do what the benchmark says it did."""


def check_masked(what, model, width, steps):
    """Raises unless a pruner masks every FFN to a width and has seen all steps.

    Args:
        what: str, what the benchmark calls the model.
        model: Keras model with a pruner at work.
        width: int, active neurons of each FFN: the schedule's at this step.
        steps: int, optimizer steps that the pruner must have seen.

    Raises:
        NotPrunedError: as `check_rows` and `check_seen` do.
    """
    check_rows(what, model, width)
    check_seen(what, model, steps)


def check_rows(what, model, width):
    """Raises unless every FFN is masked to a width, its other rows exactly zero.

    Args:
        what: str, what the benchmark calls the model.
        model: Keras model whose FFNs are, or were, masked.
        width: int, active neurons of each FFN.

    Raises:
        NotPrunedError: if a mask has another width, a pruned row has a weight, or an
            active one has none.
    """
    for ffn in _prunable(what, model):
        if width >= ffn.hidden_dim:
            _fail(what, f"the schedule prunes no neuron of {ffn.name}", width=width)
        active = keras.ops.convert_to_numpy(ffn.mask) > 0
        expect(what, f"active neurons of {ffn.name}", int(active.sum()), width)
        for kernel, cut in zip(ffn.kernels, ffn.kernel_cuts(), strict=True):
            rows = _rows(kernel, cut.axis)
            kept = rows.any(axis=1)
            where = f"{kernel.path} of {ffn.name}"
            left = int(rows[~active].sum())
            expect(what, f"weights in pruned rows of {where}", left, 0)
            expect(what, f"active rows of {where}", int(kept.sum()), width)


def check_seen(what, model, steps):
    """Raises unless a pruner has seen all steps and has scored every FFN.

    Args:
        what: str, what the benchmark calls the model.
        model: Keras model with a pruner at work.
        steps: int, optimizer steps.

    Raises:
        NotPrunedError: if there is no pruner, it has missed steps, or scores are zero.
    """
    for ffn in _prunable(what, model):
        if ffn.state.active_track is None:
            _fail(what, f"no pruner is at work in {ffn.name}", steps=steps)
        pruner = pruner_of(model.optimizer)
        seen = 0 if pruner is None else pruner.steps
        expect(what, "steps that the pruner saw", seen, steps)
        scores = keras.ops.convert_to_numpy(ffn.scores)
        if not (np.isfinite(scores).all() and scores.any()):
            _fail(what, f"the scores of {ffn.name} are empty", steps=steps)


def check_narrow(what, model, width, like=None):
    """Raises unless the kernels of a model are narrow.

    Args:
        what: str, what the benchmark calls the model.
        model: Keras model.
        width: int, neurons of each FFN's kernels.
        like: Keras model that was built narrow, or None. Its weights must have the
            same shapes.

    Raises:
        NotPrunedError: if a kernel has another width, or weights other shapes.
    """
    for ffn in _prunable(what, model):
        for kernel, cut in zip(ffn.kernels, ffn.kernel_cuts(), strict=True):
            where = f"neurons of {kernel.path} of {ffn.name}"
            expect(what, where, kernel.shape[cut.axis], width)
    if like is not None:
        expect(what, "shapes of the weights", shapes(model), shapes(like))


def shapes(model):
    """The shapes of a model's trainable weights, sorted."""
    return sorted(tuple(weight.shape) for weight in model.trainable_weights)


def expect(what, quantity, found, expected):
    """Raises `NotPrunedError` unless both are equal."""
    if found != expected:
        _fail(what, f"{quantity} should be {expected}", found=found)


def _prunable(what, model):
    ffns = ki.find_ffns(model)
    if not ffns:
        _fail(what, "the model has no FFN that can be pruned", model=model.name)
    return ffns


def _rows(kernel, axis):
    """Which weights of each neuron are other than zero: bool `(neurons, weights)`."""
    values = np.moveaxis(keras.ops.convert_to_numpy(kernel), axis, 0)
    return values.reshape(len(values), -1) != 0


def _fail(what, wrong, **received):
    said = ", ".join(f"{name}={value!r}" for name, value in received.items())
    raise NotPrunedError(
        f"The benchmark timed {what!r}, which does not prune as it should ({wrong}). "
        f"Received: {said}. Discard these times and repair the pruner."
    )
