"""The pruning state of one gated FFN: taps, scores and mask.

Shapes: F = hidden_dim (neurons), D = input_dim.

How Algorithm 1 of IDEA Prune runs inside a stock Keras train step:

1. `tap` is an identity on a kernel whose backward pass also hands the kernel's
   sensitivity to a *probe*, a variable with `overwrite_with_gradient=True` (as
   Keras's float8 layers do it): the optimizer assigns it instead of stepping.
   `ticks` comes back as `ticks + 1`, so it counts the backward passes that the
   optimizer applied, and no other.
2. The next forward pass (or a look at `mask` or `scores`) `fold`s the probes into
   the moving averages and makes the new mask. Folding twice changes nothing.
3. The mask multiplies the down kernel alone: a masked neuron then contributes
   nothing, and the gradients of its three rows are exactly zero.
"""

import keras
from keras import ops
from keras.src.backend.common.stateless_scope import in_stateless_scope

from keras_idea.functional.importance import (
    REDUCTIONS,
    ema,
    neuron_importance,
    reduce_rows,
    sensitivity,
)
from keras_idea.functional.masks import take_neurons, top_k_mask
from keras_idea.layers.resize import resize
from keras_idea.validation import check_choice, check_number

MATRICES = ("up", "gate", "down")


@keras.saving.register_keras_serializable(package="keras_idea")
class NeuronState(keras.layers.Layer):
    """Scores, mask and width schedule of the neurons of one gated FFN.

    A layer only so that Keras tracks, saves and places its variables; it is
    never called. Its owner takes its kernels through `masked_kernels`.

    Args:
        ema_decay: float in [0, 1), weight of the past in the scores.
        row_reduce: "mean" or "max", over the weights of a neuron's row.
        matrix_reduce: "mean" or "max", over up, gate and down.
        name: str, the layer's name.
    """

    def __init__(
        self, ema_decay=0.4, row_reduce="mean", matrix_reduce="max", name=None
    ):
        super().__init__(name=name, dtype="float32")
        self.ema_decay = check_number(
            "ema_decay", ema_decay, 0.0, 1.0, exclude_maximum=True
        )
        self.row_reduce = check_choice("row_reduce", row_reduce, list(REDUCTIONS))
        self.matrix_reduce = check_choice(
            "matrix_reduce", matrix_reduce, list(REDUCTIONS)
        )
        self.width_schedule = None
        self.tracking = True
        self._probes, self._ticks = [], None

    def build(self, hidden_dim, input_dim):
        """Makes the variables; without `tracking` only those that rest."""
        # The mean of the rows' averages is the average of the rows' means, so
        # 3 F numbers replace 3 F D; only the maximum needs them all.
        row = (hidden_dim,)
        if self.row_reduce == "max":
            row = (hidden_dim, input_dim)

        def add(name, shape, **kwargs):
            return self.add_weight(
                name=name, shape=shape, dtype="float32", autocast=False, **kwargs
            )

        self._scores = add("scores", (3, *row), initializer="zeros", trainable=False)
        self._mask = add("mask", (hidden_dim,), initializer="ones", trainable=False)
        self._step = add("step", (), initializer="zeros", trainable=False)
        if self.tracking:
            probe = {"initializer": "zeros", "overwrite_with_gradient": True}
            self._probes = [add(f"{name}_probe", row, **probe) for name in MATRICES]
            self._ticks = add("ticks", (), **probe)
        self.built = True

    @property
    def hidden_dim(self):
        """int, neurons that the state has places for (dead ones too)."""
        return self._mask.shape[0]

    @property
    def mask(self):
        """Variable `(F,)`, the mask that goes with the present weights."""
        self.fold(assign=True)
        return self._mask

    @property
    def scores(self):
        """Variable `(3, F)` or `(3, F, D)`, the scores up to the last step."""
        self.fold(assign=True)
        return self._scores

    @property
    def ticks(self):
        """int, backward passes counted: the optimizer steps taken."""
        return int(self._ticks.value if self.tracking else self._step.value)

    @property
    def probes(self):
        """List of the variables that are trainable only in name."""
        return [*self._probes, self._ticks] if self._probes else []

    def importance(self):
        """Importance `(F,)` of the neurons by the present scores."""
        return neuron_importance(self.scores.value, self.row_reduce, self.matrix_reduce)

    def fold(self, assign):
        """Folds what the last backward pass left into scores and mask.

        Args:
            assign: bool, whether to assign the variables too.

        Returns:
            The mask `(F,)` that the present weights go with.
        """
        mask = self._mask.value
        if not self.tracking:
            return mask
        ticks = ops.stop_gradient(self._ticks.value)
        probes = ops.stop_gradient(ops.stack([probe.value for probe in self._probes]))
        scores = self._scores.value
        pending = ticks > self._step.value
        scores = ops.where(pending, ema(probes, scores, self.ema_decay), scores)
        if self.width_schedule is not None:
            # The same mask again where the width has not fallen, because a mask
            # never revives a neuron: so this needs no look at `pending`.
            importance = neuron_importance(scores, self.row_reduce, self.matrix_reduce)
            width = self.width_schedule.call(ops.cast(ticks, "int32"))
            mask = top_k_mask(importance, width, alive=mask)
        if assign:
            self._scores.assign(scores)
            # A copy: on jax two variables that share one array cannot both be
            # donated to the next step.
            self._step.assign(ops.copy(ticks))
            if self.width_schedule is not None:
                self._mask.assign(mask)
        return mask

    def masked_kernels(self, up, gate, down, training=None):
        """The three kernels as the forward pass must use them.

        Args:
            up: kernel `(D, F)`, the activated one.
            gate: kernel `(D, F)`, the linear one.
            down: kernel `(F, D)`.
            training: bool or None; only False leaves the state unassigned,
                because Keras passes None to layers of a model whose `call` takes
                no `training`.

        Returns:
            up, gate and down, tapped; down is masked.
        """
        # On jax a train step runs in a stateless scope. Outside one the user may
        # be tracing with jax.jit, and an assigned tracer would outlive the trace.
        safe = keras.backend.backend() != "jax" or in_stateless_scope()
        mask = self.fold(assign=training is not False and safe)
        up_probe, gate_probe, down_probe = (probe.value for probe in self._probes)
        return (
            _tap(up, up_probe, 0, self.row_reduce),
            _tap(gate, gate_probe, 0, self.row_reduce),
            _tap_down(down, mask, down_probe, self._ticks.value, self.row_reduce),
        )

    # What the run does with it, outside the compiled step.

    def start_at(self, step):
        """Sets the count of optimizer steps, keeping scores and mask.

        Args:
            step: int, what `optimizer.iterations` says now.
        """
        self.fold(assign=True)
        self._ticks.assign(float(step))
        self._step.assign(float(step))

    def narrow(self, kept):
        """Ends the tracking and narrows scores and mask, in place.

        Args:
            kept: ascending indices of the neurons that stay.

        Returns:
            list of the variables given up, which the optimizer must forget.
        """
        self.fold(assign=True)
        resize(self._scores, take_neurons(self._scores.value, kept, 1))
        resize(self._mask, take_neurons(self._mask.value, kept, 0))
        given_up = self.probes
        self.tracking, self.width_schedule = False, None
        self._probes, self._ticks = [], None
        for variable in given_up:
            self._untrack_variable(variable)
        return given_up


def _sensitivity_rows(kernel, gradient, axis, row_reduce):
    """Sensitivity as the probe holds it: `(F,)`, or `(F, D)` for the maximum."""
    values = sensitivity(kernel, gradient)
    if row_reduce == "max":
        return ops.transpose(values) if axis == 0 else values
    return reduce_rows(values, axis, row_reduce)


def _tap(kernel, probe, axis, row_reduce):
    """The kernel unchanged; its backward gives the probe the sensitivity."""

    @ops.custom_gradient
    def tap(kernel, probe):
        def grad(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return upstream, _sensitivity_rows(kernel, upstream, axis, row_reduce)

        return ops.copy(kernel), grad

    return tap(kernel, probe)


def _tap_down(kernel, mask, probe, ticks, row_reduce):
    """The kernel with its dead rows zeroed; as `_tap`, and ticks count on."""

    @ops.custom_gradient
    def tap(kernel, mask, probe, ticks):
        mask_F1 = ops.cast(ops.expand_dims(mask, -1), kernel.dtype)

        def grad(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            gradient = upstream * mask_F1
            return (
                gradient,
                ops.zeros_like(mask),
                _sensitivity_rows(kernel, gradient, 1, row_reduce),
                ticks + 1.0,
            )

        return kernel * mask_F1, grad

    return tap(kernel, mask, probe, ticks)
