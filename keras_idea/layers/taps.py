"""Taps: identities on a kernel whose backward pass returns new variables' values.

Shapes: F = hidden_dim (neurons), D = input_dim.
"""

import functools

from keras import ops

from keras_idea.functional.importance import ema, reduce_rows, sensitivity


def moving_average(axis, row_reduce, ema_decay):
    """A function that averages the sensitivity of one matrix into its row.

    Args:
        axis: int, the kernel's axis of the weights that belong to one neuron.
        row_reduce: "mean" or "max".
        ema_decay: float in [0, 1), the weight of the past.

    Returns:
        Function of kernel, gradient and row: the new row, `(F,)`, or `(F, D)`
        for the maximum.
    """
    return functools.partial(
        _averaged_rows, axis=axis, row_reduce=row_reduce, ema_decay=ema_decay
    )


def _averaged_rows(kernel, gradient, row, axis, row_reduce, ema_decay):
    values = sensitivity(kernel, gradient)
    if row_reduce == "mean":
        values = reduce_rows(values, axis, row_reduce)
    elif axis == 0:
        values = ops.transpose(values)
    return ema(values, row, ema_decay)


def tap_rows(kernel, row, average):
    """The kernel unchanged; backward, `row` becomes the new moving average."""

    @ops.custom_gradient
    def tap(kernel, row):
        def grad(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return upstream, average(kernel, upstream, row)

        return kernel, grad

    return tap(kernel, row)


def tap_down(kernel, mask, row, alive, ticks, average):
    """The kernel with its dead rows zeroed; backward, as `tap_rows`, and counted."""

    @ops.custom_gradient
    def tap(kernel, mask, row, alive, ticks):
        mask_F1 = ops.cast(ops.expand_dims(mask, -1), kernel.dtype)

        def grad(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            gradient = upstream * mask_F1
            new_row = average(kernel, gradient, row)
            return gradient, ops.zeros_like(mask), new_row, mask, ticks + 1.0

        return kernel * mask_F1, grad

    return tap(kernel, mask, row, alive, ticks)
