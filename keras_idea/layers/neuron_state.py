"""The pruning state of one gated FFN: scores, mask and taps.

Shapes: F = hidden_dim (neurons), D = input_dim.

How Algorithm 1 of IDEA Prune runs inside a stock Keras train step: a *tap* is an
identity on a kernel whose backward pass, besides the kernel's gradient, returns
the new moving average of the kernel's sensitivity as the "gradient" of a variable
with `overwrite_with_gradient=True`. The optimizer assigns it instead of stepping,
as it does for Keras's float8 layers. In the same way `alive` remembers the mask
of the last step, and `ticks` counts the steps that the optimizer applied.

So the forward pass assigns nothing: the mask is a pure function of scores, ticks
and the living, the same in training, in inference and when it is recomputed
(rematerialization). It multiplies the down kernel alone: a masked neuron then
contributes nothing, and the gradients of its three rows are exactly zero.

A *probe* is how another method than sensitivity looks at the neurons: a layer with
variables of its own, through which the hidden activations pass (see
`keras_idea.methods`). Its variables change in the same way.

`scores` and `mask` are what the outside sees: non-trainable variables, brought up
to date whenever they are looked at. `original_index` says which neurons they are of,
however often the FFN was narrowed.
"""

import contextlib
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.functional.importance import REDUCTIONS, neuron_importance
from keras_idea.functional.masks import top_k_mask
from keras_idea.layers.call_context import training_flag
from keras_idea.layers.taps import moving_average, tap_down, tap_rows
from keras_idea.layers.unlocked import unlocked
from keras_idea.validation import check_choice, check_number

MATRICES = ("up", "gate", "down")


@keras.saving.register_keras_serializable(package="keras_idea")
class NeuronState(keras.layers.Layer):
    """Scores, mask and width schedule of the neurons of one gated FFN.

    A layer only so that Keras tracks, saves and places its variables; it is
    never called. Its owner takes each of its kernels through `tap`.

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
        #: int, the neurons it had at first, before any narrowing.
        self.full_dim = None
        self.probe = None
        self._rows: list = []
        self._alive: Any = None
        self._ticks: Any = None

    def build(self, hidden_dim, input_dim):
        """Makes the variables; without `tracking` only those for the outside."""
        self.full_dim = hidden_dim
        # The mean of the rows' averages is the average of the rows' means, so
        # 3 F numbers replace 3 F D; only the maximum needs them all.
        per_weight = self.row_reduce == "max"
        row = (hidden_dim, input_dim) if per_weight else (hidden_dim,)

        def add(name, shape, initializer="zeros", **kwargs):
            kwargs |= {"dtype": "float32", "autocast": False}
            return self.add_weight(shape, initializer, name=name, **kwargs)

        self._scores = add("scores", (3, *row), trainable=False)
        self._mask = add("mask", (hidden_dim,), "ones", trainable=False)
        self._step = add("step", (), trainable=False)
        index = add("original_index", (hidden_dim,), _numbers, trainable=False)
        #: Variable `(F,)`, float32: the number that each neuron had at first.
        self.original_index = index
        if self.tracking:
            swapped = {"overwrite_with_gradient": True}
            self._rows = [add(f"{name}_scores", row, **swapped) for name in MATRICES]
            self._alive = add("alive", (hidden_dim,), "ones", **swapped)
            self._ticks = add("ticks", (), **swapped)
        self.built = True

    @property
    def mask(self):
        """Variable `(F,)`, the mask that goes with the present weights."""
        self.publish()
        return self._mask

    @property
    def scores(self):
        """Variable `(3, F)` or `(3, F, D)`, the scores up to the last step."""
        self.publish()
        return self._scores

    @property
    def ticks(self):
        """int, the optimizer steps counted."""
        return int((self._ticks if self.tracking else self._step).value)

    @property
    def overwritten(self):
        """List of the variables that are trainable only in name."""
        return [*self._rows, self._alive, self._ticks] if self._rows else []

    def importance(self):
        """Importance `(F,)` of the neurons by the present scores."""
        return neuron_importance(self.scores.value, self.row_reduce, self.matrix_reduce)

    def tap(self, matrix, kernel):
        """A kernel as the forward pass must use it; itself once narrowed.

        Args:
            matrix: "up" (the activated one), "gate" (the linear one) or "down".
            kernel: tensor `(D, F)`; down `(F, D)`.

        Returns:
            Tensor like `kernel`, tapped; down is masked too.
        """
        if not self.tracking:
            return kernel
        row = self._rows[MATRICES.index(matrix)].value
        axis = 1 if matrix == "down" else 0
        average = moving_average(axis, self.row_reduce, self.ema_decay)
        if matrix != "down":
            return tap_rows(kernel, row, average)
        mask, alive = self._present_mask(), self._alive.value
        return tap_down(kernel, mask, row, alive, self._ticks.value, average)

    def hidden(self, activations, mask=None):
        """The hidden activations as the down projection must read them.

        Args:
            activations: tensor `(..., F)`, `activation(up^T x) * (gate^T x)`.
            mask: tensor `(...)` or None, Keras's mask of the tokens.

        Returns:
            Tensor like `activations`; itself without a probe.
        """
        if self.probe is None:
            return activations
        steps = ops.stop_gradient(self._ticks.value)
        return self.probe.tap(activations, steps, training_flag(), mask)

    def set_probe(self, probe):
        """Hangs a probe in the way of the hidden activations, and builds it.

        Args:
            probe: a Keras layer with `tap(activations, steps, training, mask)`;
                None takes the present one off.

        Returns:
            list of the variables given up, which the optimizer must forget.
        """
        given_up = [] if self.probe is None else self.probe.variables
        if self.probe is not None:
            self._tracker.untrack(self.probe)
        unlocked(self, setattr, "probe", probe)
        if probe is not None and not probe.built:
            with contextlib.ExitStack() as scopes:
                # In the state's scope, so that no two probes have the same path.
                for name in self.path.split("/"):
                    scopes.enter_context(keras.name_scope(name))
                probe.build()
        return given_up

    def kept_neurons(self):
        """Indices of the neurons alive now, ascending, as an int array."""
        return np.flatnonzero(ops.convert_to_numpy(self.mask))

    def publish(self):
        """Brings `scores` and `mask` up to the last optimizer step."""
        if self.tracking:
            self._mask.assign(self._present_mask())
            pending = self._ticks.value > self._step.value
            rows = ops.stack([row.value for row in self._rows])
            self._scores.assign(ops.where(pending, rows, self._scores.value))
            # A copy: on jax two variables that share one array cannot both be
            # donated to the next step.
            self._step.assign(ops.copy(self._ticks.value))

    def start_at(self, step):
        """Sets the count of optimizer steps, keeping scores and mask.

        Args:
            step: int, what `optimizer.iterations` says now.
        """
        self.publish()
        self._ticks.assign(float(step))
        self._step.assign(float(step))

    def _present_mask(self):
        """The mask `(F,)` that goes with the present weights; pure."""
        mask = self._mask.value * ops.stop_gradient(self._alive.value)
        if self.width_schedule is None:
            return mask
        # The same mask again where the width has not fallen, because a mask
        # never revives a neuron.
        rows = ops.stop_gradient(ops.stack([row.value for row in self._rows]))
        importance = neuron_importance(rows, self.row_reduce, self.matrix_reduce)
        steps = ops.cast(ops.stop_gradient(self._ticks.value), "int32")
        return top_k_mask(importance, self.width_schedule.call(steps), alive=mask)

    def cuts(self):
        """List of (variable, axis of its neurons): what narrowing must slice."""
        shown = [(self._scores, 1), (self._mask, 0), (self.original_index, 0)]
        rows = [(row, 0) for row in self._rows]
        return shown + rows + ([(self._alive, 0)] if rows else [])

    def stop_tracking(self):
        """Keeps scores and mask as they are from now on.

        Returns:
            list of the variables given up, which the optimizer must forget.
        """
        self.publish()
        given_up = self.overwritten
        self.tracking, self.width_schedule = False, None
        self._rows, self._alive, self._ticks = [], None, None
        for variable in given_up:
            self._untrack_variable(variable)
        return given_up

    def save_own_variables(self, store):
        """Saves scores and mask as they are now."""
        self.publish()
        super().save_own_variables(store)


def _numbers(shape, dtype):
    return ops.arange(shape[0], dtype=dtype)
