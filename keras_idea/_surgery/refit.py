"""What reads the units of a group, fitted anew when some of them go.

Shapes: B samples, T tokens, R rows of the kernel that reads a group, D its outputs.
Places of an image are its tokens.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea import _processes as processes
from keras_idea._finding.find import FFN
from keras_idea._keras.float32_products import float32_products
from keras_idea._keras.optimizer_variables import innermost
from keras_idea._signals import held_back
from keras_idea._step.row_ops import zero_rows
from keras_idea._surgery.readers import Reader, readers_of
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.functional.least_squares import output_error, refit_rows
from keras_idea.methods.calibration import Passes, Samples
from keras_idea.methods.captures import Sums
from keras_idea.methods.method import Decision

#: One in this many samples is held out, to choose the ridge.
HELD_OUT = 4


class Products:
    """Adds up the products of what a kernel reads: `(2, R + 1, R + 1)`.

    The first is of the samples to fit on, the second of those held out. The last row
    and column are of a one, for the bias. From all values the mean of the first batch
    is taken: in float32 a large mean would leave few digits to what varies.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.shift: Any = None

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Sums:
        """What a batch adds: a `Statistic`."""
        batch, rows = hidden.shape[0], hidden.shape[-1]
        hidden = ops.reshape(ops.cast(hidden, "float32"), (batch, -1, rows))
        counts_BT1 = _counts(hidden, mask)
        # Not a product, in which padding that is not finite would remain.
        hidden = ops.where(counts_BT1 > 0, hidden, 0.0)
        if self.shift is None:
            self.shift = ops.mean(hidden, axis=(0, 1))
        hidden = ops.where(counts_BT1 > 0, hidden - self.shift, 0.0)
        hidden_BTR = ops.concatenate([hidden, counts_BT1], axis=-1)
        parts = _parts(self.samples, batch)
        self.samples += batch
        grams = [_gram(ops.take(hidden_BTR, part, axis=0)) for part in parts]
        return ops.stack(grams), ops.ones(())

    def unshifted(self, gram: np.ndarray) -> np.ndarray:
        """Converts products of shifted values to products of the original values."""
        shift, ones = np.zeros(len(gram)), np.array(gram[-1], "float64")
        shift[:-1] = ops.convert_to_numpy(self.shift)
        # (H + 1 s)^T (H + 1 s), where `ones` is H^T 1, and its last entry the samples.
        crossed = np.outer(shift, ones + 0.5 * ones[-1] * shift)
        return gram + crossed + crossed.T


def _split(samples: float) -> tuple[float, float]:
    """How many samples to fit on, and how many are held out."""
    if math.isinf(samples):
        return samples, samples
    held = samples // HELD_OUT
    return samples - held, held


def _counts(hidden_BTR: Tensor, mask: Tensor | None) -> Tensor:
    """1 for each token that counts, float32 `(B, T, 1)`."""
    counts_BT1 = ops.ones_like(hidden_BTR[..., :1], dtype="float32")
    if mask is None:
        return counts_BT1
    mask_BT1 = ops.reshape(mask, ops.shape(counts_BT1))
    return ops.cast(ops.cast(mask_BT1, "bool"), "float32")  # of any type


def _parts(before: int, batch: int) -> list[np.ndarray]:
    """The places in a batch of the samples to fit on, and of those held out."""
    held = np.arange(before, before + batch) % HELD_OUT == HELD_OUT - 1
    return [np.flatnonzero(part) for part in (~held, held)]


def _gram(hidden_BTR: Tensor) -> Tensor:
    flat = ops.reshape(hidden_BTR, (-1, hidden_BTR.shape[-1]))
    with float32_products():
        return ops.matmul(ops.transpose(flat), flat)


_RIDGES = tuple(10.0**power for power in range(-6, 2))


def carry_out_and_refit(
    model: keras.Model,
    decisions: Sequence[tuple[FFN, Decision]],
    samples: Samples,
) -> None:
    r"""Masks units of groups in place and fits what reads them to compensate.

    One reader after another, in the order in which the model calls them, so that each
    is fitted on what those before it, cut and fitted, really give it:

    $$W' = \arg\min_{W'} \lVert H W - H_K W' \rVert^2
    + \lambda s \lVert W' - W_K \rVert^2$$

    `H` is what the reader's kernel `W` is multiplied with (of a convolution, what it
    covers at each place), `K` are the rows that stay; see `refit_rows`.
    A bias of the reader is fitted too, without a penalty. `lambda` is chosen by the
    error on every fourth sample, which is held out. Nothing is compiled. Of a
    functional model each layer is called once on the data, and once more for each
    reader in it (see `Passes`); a model with a `call` of its own as often as it has
    readers. Too few samples are refused before a reader is fitted, unless padding or
    samples of several lengths hide how many tokens they have. If a reader cannot be
    fitted, the groups that are not done are as they were.

    Args:
        model: keras.Model. Built.
        decisions: list of pairs of an `FFN` and the `Decision` which of its units stay.
        samples: `Samples`.
    """
    masks = {id(group): np.asarray(decision.mask) > 0 for group, decision in decisions}
    of_group = {id(group): decision for group, decision in decisions}
    readers = readers_of([group for group, _ in decisions])
    passes = Passes(model, samples)
    with _restored([reader for reader in readers if reader.shares]):
        units = {group: int(mask.sum()) for group, mask in masks.items()}
        for reader in _in_order(passes, readers, units):
            products = Products()
            to_fit, held = map(products.unshifted, passes.sums(reader.look, products))
            with held_back():  # a kernel that was fitted is of this mask alone
                _fit(reader, masks, to_fit, held)
                if not reader.shares:
                    [(group, _)] = reader.rows
                    carry_out_decision(group, of_group.pop(id(group)))
        with held_back():
            for group, _ in decisions:
                if id(group) in of_group:
                    carry_out_decision(group, of_group[id(group)])


@held_back()
def carry_out_decision(ffn: FFN, decision: Decision) -> None:
    """Masks all neurons of an FFN but those decided for, in place."""
    if decision.scale is not None:
        for cut in ffn.outgoing_cuts():
            value = cut.variable.value
            scale = ops.convert_to_tensor(decision.scale, value.dtype)
            cut.variable.assign(value * cut.spread(scale, 1))
    ffn.state.set_mask(decision.mask)
    zero_rows(ffn.cuts(), ffn.state.mask.value)


@contextlib.contextmanager
def _restored(readers: Sequence[Reader]) -> Iterator[None]:
    """Gives readers their weights again if something fails or the user stops it."""
    held = [v for reader in readers for v in (reader.kernel, reader.bias)]
    before = [(v, ops.convert_to_numpy(v.value)) for v in held if v is not None]
    try:
        yield
    except BaseException:
        for variable, value in before:
            variable.assign(value)
        raise


def check_refit(
    groups: Sequence[FFN], optimizer: keras.Optimizer | None = None, replicas: int = 1
) -> None:
    """Refuses groups that cannot be fitted, and ways to train in which it is wrong."""
    for reader in readers_of(groups):
        if reader.kernel.constraint is not None:
            raise ArgumentError(
                f"refit=True does not support a kernel constraint, and what reads "
                f"{reader.name} has one. Leave `refit` out, or the constraint."
            )
    if replicas > 1 or processes.count() > 1:
        raise ArgumentError(
            "refit=True fits layers on one device. Received: "
            f"{replicas} replicas, {processes.count()} processes. Leave `refit` out, "
            "or train on one device."
        )
    if optimizer is not None and innermost(optimizer).use_ema:
        raise ArgumentError(
            "refit=True changes weights between two steps, and the optimizer's "
            "averages (use_ema=True) would not know of it. Leave one of them out."
        )


def check_data(
    model: keras.Model, targets: Sequence[tuple[FFN, int]], samples: Samples
) -> None:
    """Raises if a refit that keeps so many units of each group has too few samples."""
    readers = readers_of([group for group, _ in targets])
    _in_order(Passes(model, samples), readers, {id(g): kept for g, kept in targets})


def _in_order(
    passes: Passes, readers: Sequence[Reader], units: dict[int, int]
) -> list[Reader]:
    """Returns the readers in the model's order; raises if there are too few samples.

    `units` are those that each group keeps, by its `id`.
    """
    seen = passes.tokens_in_order([reader.look for reader in readers])
    count = passes.samples()
    for place, tokens in seen.items():
        parts = [tokens * part for part in _split(count)]
        _check_tokens(readers[place], readers[place].kept(units), *parts)
    return [readers[place] for place in seen]


def _fit(
    reader: Reader, masks: dict[int, np.ndarray], gram: np.ndarray, held: np.ndarray
) -> None:
    """Fits a kernel, and its bias, in place; the rows that go are zeros then."""
    kernel_RD, gone = reader.matrix(), reader.gone(masks)
    rows = len(kernel_RD)
    kept = np.setdiff1d(np.arange(rows), gone)
    _check_samples(reader, len(kept), gram, held, kernel_RD)
    bias, bias_1D = reader.bias, np.zeros((1, kernel_RD.shape[1]))
    if bias is not None:
        bias_1D[:] = ops.convert_to_numpy(ops.cast(bias.value, "float32")).reshape(-1)
    whole = np.concatenate([kernel_RD, bias_1D])
    places = np.append(kept, rows)

    def fits(gram: np.ndarray) -> Callable[[float], np.ndarray]:
        means = gram[:-1, -1] / gram[-1, -1] * (bias is not None)
        centered = gram[:-1, :-1] - gram[-1, -1] * np.outer(means, means)

        def fitted(ridge: float) -> np.ndarray:
            new = kernel_RD[kept]
            if (np.diagonal(centered)[kept] > 0).any():  # else nothing to fit with
                new = refit_rows(centered, kernel_RD, kept, ridge)
            shift = means @ kernel_RD - means[kept] @ new
            return np.concatenate([new, bias_1D + shift])

        return fitted

    of_rows = output_error(held, whole, places)
    total = max(float(np.sum(whole * (held @ whole))), 1e-30)

    def error(rows_KD: np.ndarray) -> float:
        return of_rows(rows_KD) / total

    cut_error = error(whole[places])
    fitted = fits(gram)
    errors = {ridge: error(fitted(ridge)) for ridge in _RIDGES}
    ridge = min(errors, key=lambda ridge: errors[ridge])
    new = whole[places]
    if errors[ridge] < cut_error:
        new = fits(gram + held)(ridge)
    kernel_RD[kept], kernel_RD[gone] = new[:-1], 0.0
    reader.assign(kernel_RD)
    if bias is not None:
        bias.assign(new[-1].reshape(bias.shape))


def _check_samples(
    reader: Reader,
    kept: int,
    gram: np.ndarray,
    held: np.ndarray,
    kernel: np.ndarray,
) -> None:
    """Refuses data that do not determine the kernel."""
    if not all(np.isfinite(values).all() for values in (gram, held, kernel)):
        raise ArgumentError(
            f"The hidden activations of {reader.name} on the data, or the weights that "
            "read them, are not all finite, so nothing can be fitted. Look for NaN in "
            "the data and in the weights."
        )
    _check_tokens(reader, kept, gram[-1, -1], held[-1, -1])


def _check_tokens(reader: Reader, kept: int, tokens: float, held: float) -> None:
    if tokens < kept or not held:
        tokens, held = round(tokens), round(held)
        raise ArgumentError(
            f"The data are too few to fit what reads {reader.name}: it keeps {kept} "
            f"rows, and there are {tokens} tokens to fit them on and {held} to choose "
            f"the ridge with (every {HELD_OUT}th sample). Give more `data`, raise "
            "`num_samples`, or leave `refit` out."
        )
