"""Fits the kernels that read the units of groups anew when some of the units go.

Shapes: B samples, T tokens (places of an image), F units of a group; R rows of the
kernel as a matrix, D its outputs.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea import _processes as processes
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, NEURONS
from keras_idea._keras.channels import channel_axis
from keras_idea._keras.float32_products import float32_products
from keras_idea._keras.layers import student_of
from keras_idea._keras.optimizer_variables import innermost
from keras_idea._signals import held_back
from keras_idea._step.replicas import replicas_of
from keras_idea._step.row_ops import zero_rows
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.functional.least_squares import output_error, refit_rows
from keras_idea.methods.calibration import Passes, Samples
from keras_idea.methods.captures import Look, Sums, capture_of, kernel_capture
from keras_idea.methods.method import Decision

#: One in this many samples is held out, to choose the ridge.
HELD_OUT = 4
_RIDGES = tuple(10.0**power for power in range(-6, 2))
# The most numbers of a batch to fit a convolution on: of more places, some are drawn.
_BATCH_NUMBERS = 2**24
_CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
_LEAVE = "Leave `refit` out, or exclude that group."


def carry_out_and_refit(
    model: keras.Model,
    decisions: Sequence[tuple[FFN, Decision]],
    samples: Samples,
) -> None:
    r"""Masks units of groups in place, and fits what reads them to compensate.

    One reader after another, in the order in which the model calls them, so that each
    is fitted on what those before it, cut and fitted, really give it:

    $$W' = \arg\min_{W'} \lVert H W - H_K W' \rVert^2
    + \lambda s \lVert W' - W_K \rVert^2$$

    `H` is what the reader's kernel `W` is multiplied with (of a convolution, what it
    covers at each place), `K` are the rows that stay; see `refit_rows`. A bias is
    fitted too, without a penalty. `lambda` is chosen by the error on every fourth
    sample, which is held out. If a reader cannot be fitted, the groups that are not
    done are as they were.

    Args:
        model: keras.Model. Built.
        decisions: list of pairs of an `FFN` and the `Decision` which of its units stay.
        samples: `Samples`.

    Raises:
        ArgumentError: If a reader is not supported, or if the samples do not determine
            it. Too few are rejected first, unless padding hides their tokens.
    """
    masks = {id(group): np.asarray(decision.mask) > 0 for group, decision in decisions}
    of_group = {id(group): decision for group, decision in decisions}
    readers = readers_of([group for group, _ in decisions])
    passes = Passes(model, samples)
    with _restored([reader for reader in readers if reader.shares]):
        for reader in _in_order(passes, readers, masks):
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


def check_refit(
    model: keras.Model, targets: Sequence[tuple[FFN, int]], samples: Samples
) -> None:
    """Raises if groups cannot be fitted while a model trains; `targets` stay of each.

    The weights that are trained are those of one device, and no averages of them.
    """
    readers = readers_of([group for group, _ in targets])
    replicas = replicas_of(model)
    if replicas > 1 or processes.count() > 1:
        raise ArgumentError(
            "refit=True fits layers on one device. Received: "
            f"{replicas} replicas, {processes.count()} processes. Leave `refit` out, "
            "or train on one device."
        )
    if innermost(model.optimizer).use_ema:
        raise ArgumentError(
            "refit=True replaces weights between two steps, and the averages of an "
            "optimizer with use_ema=True would not know of it. Leave one of them out."
        )
    passes = Passes(student_of(model), samples)
    masks = {id(group): np.arange(group.hidden_dim) < n for group, n in targets}
    _in_order(passes, readers, masks)


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """A kernel that reads the units of groups, as a matrix `(R, D)`.

    Attributes:
        name: str, for messages: the group's, or the path of a layer that reads several.
        look: makes the capture of what the kernel is multiplied with, `(..., R)`.
        outputs: int, D.
        rows: list of (group, the rows of each of its units: int array `(F, rows)`).
    """

    name: str
    kernel: keras.Variable
    bias: keras.Variable | None
    look: Look
    outputs: int
    rows: list[tuple[FFN, np.ndarray]]

    def matrix(self) -> np.ndarray:
        """Float64 array `(R, D)`, a copy."""
        values = ops.convert_to_numpy(ops.cast(self.kernel.value, "float32"))
        return values.reshape(self.total, -1).astype("float64")

    def assign(self, matrix_RD: np.ndarray) -> None:
        """Sets the kernel."""
        self.kernel.assign(matrix_RD.reshape(self.kernel.shape))

    @property
    def shares(self) -> bool:
        """bool, whether others may read its groups too: layers that read channels."""
        return any(KINDS[group.kind].by_readers for group, _ in self.rows)

    @property
    def total(self) -> int:
        """int, R."""
        return math.prod(self.kernel.shape) // self.outputs

    def gone(self, masks: dict[int, np.ndarray]) -> np.ndarray:
        """Int array, the rows of units that go; `masks` by the `id` of the group."""
        return np.concatenate(
            [rows[masks[id(group)] == 0].ravel() for group, rows in self.rows]
        )


def readers_of(groups: Sequence[FFN]) -> list[Reader]:
    """Returns the kernels that read groups; raises if one cannot be fitted."""
    found: list[Reader] = []
    convolving: dict[int, Reader] = {}
    for group in groups:
        if not KINDS[group.kind].by_readers:
            found.append(_reader(group))
            continue
        for layer, cut in zip(group.readers, group.outgoing_cuts(), strict=True):
            kernel = cut.variable
            if id(kernel) not in convolving:
                convolving[id(kernel)] = _sliding(group, layer, kernel)
            steps = kernel.shape[cut.axis] * np.arange(math.prod(kernel.shape[:-2]))
            rows = np.add.outer(cut.places, steps).reshape(group.hidden_dim, -1)
            convolving[id(kernel)].rows.append((group, rows))
    found += convolving.values()
    for reader in found:
        if reader.kernel.constraint is not None:
            raise ArgumentError(
                f"refit=True does not support a kernel constraint, and what reads "
                f"{reader.name} has one. Leave `refit` out, or the constraint."
            )
    return found


def _reader(group: FFN) -> Reader:
    """Returns what reads neurons or heads, which must be its first axes."""
    if group.kind == NEURONS and group.shown_by is None:
        raise ArgumentError(
            f"refit=True needs the hidden activations of {group.name}, which no single "
            f"layer is called on (experts, or several readers). {_LEAVE}"
        )
    last = group.kernel_cuts()[-1]
    kernel, first = last.variable, last.axis == 0
    if group.kind != NEURONS:
        first &= last.in_order
        for reader in group.readers[:1]:
            if isinstance(reader, keras.layers.EinsumDense):
                inputs, axes = reader.equation.split("->")[0].split(",")
                first = axes[:2] == inputs[-2:]
    if not first:
        raise ArgumentError(
            f"refit=True cannot fit {group.name}: its heads are not the first axes of "
            f"the kernel that reads them. {_LEAVE}"
        )
    heads_apart = group.kind != NEURONS and len(kernel.shape) > 2
    outputs = math.prod(kernel.shape[2 if heads_apart else 1 :])
    rows = np.arange(math.prod(kernel.shape) // outputs).reshape(group.hidden_dim, -1)
    look = functools.partial(capture_of, group)
    bias = group.reader_bias
    return Reader(group.name, kernel, bias, look, outputs, [(group, rows)])


def _sliding(group: FFN, layer: Any, kernel: keras.Variable) -> Reader:
    """Returns a layer that reads channels, as a group comes to it."""
    dense = type(layer) is keras.layers.Dense
    if not dense and (type(layer) not in _CONVOLUTIONS or layer.groups > 1):
        raise ArgumentError(
            f"refit=True does not support '{layer.path}', a {type(layer).__name__} "
            f"that reads {group.name}: only Dense layers and convolutions without "
            f"groups. {_LEAVE}"
        )
    outputs = kernel.shape[-1]
    rows = math.prod(kernel.shape) // outputs
    read = functools.partial(_flat if dense else _patches, layer, rows)
    look = functools.partial(kernel_capture, layer, read)
    return Reader(layer.path, kernel, layer.bias, look, outputs, [])


def _flat(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    flat = ops.reshape(inputs, (inputs.shape[0], -1, rows))
    return _drawn(flat, _BATCH_NUMBERS // (rows * inputs.shape[0]))


def _patches(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    """Returns what a convolution's kernel is multiplied with: `(B, places, R)`.

    As in `keras.ops.image.extract_patches`, the patches are a convolution with an
    identity matrix; here of any rank, and with causal padding.
    """
    outputs = layer.compute_output_shape((1, *inputs.shape[1:]))
    places = math.prod(outputs) // layer.filters
    inputs = ops.moveaxis(inputs, channel_axis(layer, inputs), -1)
    padding = layer.padding
    if padding == "causal":
        before = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
        inputs, padding = ops.pad(inputs, [(0, 0), (before, 0), (0, 0)]), "valid"
    identity = ops.reshape(
        ops.eye(rows, dtype=inputs.dtype), (*layer.kernel_size, -1, rows)
    )
    most = _BATCH_NUMBERS // (rows * inputs.shape[0])
    at_once = max(1, _BATCH_NUMBERS // (rows * places))
    found = []
    for start in range(0, inputs.shape[0], at_once):
        part = inputs[start : start + at_once]
        with float32_products():
            patches = ops.conv(
                part,
                identity,
                layer.strides,
                padding,
                "channels_last",
                layer.dilation_rate,
            )
        found.append(_drawn(ops.reshape(patches, (-1, places, rows)), most))
    return ops.concatenate(found)


def _drawn(patches: Tensor, most: int) -> Tensor:
    """Returns at most so many places of `(samples, places, rows)`, always the same."""
    places, most = patches.shape[1], max(1, most)
    if places <= most:
        return patches
    drawn = np.random.default_rng(0).permutation(places)[:most]
    return ops.take(patches, np.sort(drawn), axis=1)


class Products:
    """Adds up the products of what a kernel reads: `(2, R + 1, R + 1)`.

    The first is of the samples to fit on, the second of those held out. The last row
    and column are of a one, for the bias. The mean of the first batch is subtracted
    from all values: in float32 a large mean would leave few digits to what varies.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.shift: Any = None

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Sums:
        """What a batch adds: a `Statistic`."""
        batch, rows = hidden.shape[0], hidden.shape[-1]
        hidden = ops.reshape(ops.cast(hidden, "float32"), (batch, -1, rows))
        counts_BT1 = ops.ones_like(hidden[..., :1])
        if mask is not None:  # of any type
            mask_BT1 = ops.cast(ops.reshape(mask, ops.shape(counts_BT1)), "bool")
            counts_BT1 = ops.cast(mask_BT1, "float32")
        # Not a product, in which padding that is not finite would remain.
        hidden = ops.where(counts_BT1 > 0, hidden, 0.0)
        if self.shift is None:
            self.shift = ops.mean(hidden, axis=(0, 1))
        hidden = ops.where(counts_BT1 > 0, hidden - self.shift, 0.0)
        hidden_BTR = ops.concatenate([hidden, counts_BT1], axis=-1)
        places = np.arange(self.samples, self.samples + batch)
        held = places % HELD_OUT == HELD_OUT - 1
        self.samples += batch
        parts = [np.flatnonzero(part) for part in (~held, held)]
        grams = [_gram(ops.take(hidden_BTR, part, axis=0)) for part in parts]
        return ops.stack(grams), ops.ones(())

    def unshifted(self, gram: np.ndarray) -> np.ndarray:
        """Converts products of shifted values to products of the original values."""
        shift, ones = np.zeros(len(gram)), np.array(gram[-1], "float64")
        shift[:-1] = ops.convert_to_numpy(self.shift)
        # (H + 1 s)^T (H + 1 s), where `ones` is H^T 1, and its last entry the samples.
        crossed = np.outer(shift, ones + 0.5 * ones[-1] * shift)
        return gram + crossed + crossed.T


def _gram(hidden_BTR: Tensor) -> Tensor:
    flat = ops.reshape(hidden_BTR, (-1, hidden_BTR.shape[-1]))
    with float32_products():
        return ops.matmul(ops.transpose(flat), flat)


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


def _in_order(
    passes: Passes, readers: Sequence[Reader], masks: dict[int, np.ndarray]
) -> list[Reader]:
    """Returns the readers in the model's order; raises if there are too few samples."""
    seen = passes.tokens_in_order([reader.look for reader in readers])
    count = passes.samples()
    held = count // HELD_OUT  # NaN, which is not too few, if it is not known
    for place, tokens in seen.items():
        reader = readers[place]
        kept = reader.total - len(reader.gone(masks))
        _check_tokens(reader, kept, tokens * (count - held), tokens * held)
    return [readers[place] for place in seen]


def _fit(
    reader: Reader, masks: dict[int, np.ndarray], gram: np.ndarray, held: np.ndarray
) -> None:
    """Fits a kernel, and its bias, in place; the rows that go are zeros then."""
    kernel_RD, gone = reader.matrix(), reader.gone(masks)
    rows = len(kernel_RD)
    kept = np.setdiff1d(np.arange(rows), gone)
    if not all(np.isfinite(values).all() for values in (gram, held, kernel_RD)):
        raise ArgumentError(
            f"The hidden activations of {reader.name} on the data, or the weights that "
            "read them, are not all finite. Look for NaN in both."
        )
    _check_tokens(reader, len(kept), gram[-1, -1], held[-1, -1])
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

    error, fitted, new = output_error(held, whole, places), fits(gram), whole[places]
    errors = {ridge: error(fitted(ridge)) for ridge in _RIDGES}
    ridge = min(errors, key=lambda ridge: errors[ridge])
    if errors[ridge] < error(new):
        new = fits(gram + held)(ridge)
    kernel_RD[kept], kernel_RD[gone] = new[:-1], 0.0
    reader.assign(kernel_RD)
    if bias is not None:
        bias.assign(new[-1].reshape(bias.shape))


def _check_tokens(reader: Reader, kept: int, tokens: float, held: float) -> None:
    """Raises for data that do not determine a kernel."""
    if tokens < kept or not held:
        tokens, held = round(tokens), round(held)
        raise ArgumentError(
            f"The data are too few to fit what reads {reader.name} ({kept} rows): "
            f"{tokens} tokens to fit, {held} to choose the ridge (every {HELD_OUT}th "
            "sample). Give more `data`, raise `num_samples`, or leave `refit` out."
        )
