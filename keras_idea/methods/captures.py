"""Sums statistics of what layers are called on, in a forward pass."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_idea._groups.kinds import KINDS, KV_GROUPS
from keras_idea._keras.channels import channel_axis, dense_of
from keras_idea._keras.layers import first_argument, mask_of, stored_kernel
from keras_idea._keras.models import instead
from keras_idea._keras.resumed import PassEnd
from keras_idea._layers.ffn import FFNLayer
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError

#: Sums over the samples of a batch, and how many were summed.
Sums: TypeAlias = tuple[Tensor, Tensor]
#: Function of what was read, such as hidden activations `(..., R)`, and of the padding
#: mask or None.
Statistic: TypeAlias = Callable[..., Sums]
#: Makes the capture of some activations with a statistic of them.
Look: TypeAlias = Callable[[Statistic], "Capture"]


@dataclasses.dataclass(eq=False)
class Capture:
    """Sums a statistic of what layers are called on, over one forward pass.

    Attributes:
        name: str. For messages.
        layers: list of the watched layers. Their sums are added.
        read: function of a layer's place in the list, its inputs and its outputs. It
            returns the tuple that `statistic` is called on.
        statistic: function of that tuple's entries and of the padding mask.
        owner: layer whose inputs carry Keras's mask, or None, which means the watched
            layer. Defaults to None.
        masks: bool. Whether it supports padding masks. Defaults to True.
        padding_masks: dict. The masks of the data of this pass, by name.
        found: the `Sums` of this pass, or None.
        ends_pass: bool. Whether the pass ends once a layer was called.
    """

    name: str
    layers: Sequence[keras.layers.Layer]
    read: Callable[[int, Tensor, Any], tuple[Tensor, ...]]
    statistic: Statistic
    owner: keras.layers.Layer | None = None
    masks: bool = True
    padding_masks: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    found: Sums | None = None
    ends_pass: bool = False

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Opens a block in which the calls of the layers are recorded."""
        self._seen: set[int] = set()
        owner = [] if self.owner is None else [(None, self.owner)]
        with contextlib.ExitStack() as scopes:
            for place, layer in [*owner, *enumerate(self.layers)]:
                call = self._watched(place, layer.call)
                scopes.enter_context(instead(layer, "call", call))
            yield

    def _watched(self, place: int | None, call: Callable[..., Any]) -> Callable:
        """Returns a call that shows what a layer is given and returns.

        Of the owner, whose place is None, only the mask of its inputs is noted.
        """

        @functools.wraps(call)  # Keras asks for the arguments that it fills in
        def watched(*args: Any, **kwargs: Any) -> Any:
            inputs = first_argument(call, args, kwargs)
            if place is None:
                self._owner_mask = mask_of(inputs)
                return call(*args, **kwargs)
            outputs = call(*args, **kwargs)
            self._see(place, inputs, outputs)
            return outputs

        return watched

    def _see(self, place: int, inputs: Tensor, outputs: Any) -> None:
        if self.found is None:
            self._seen.clear()
        if place in self._seen:
            raise ArgumentError(
                f"{self.name} is called more than once in a forward pass, so it has no "
                "activations of its own. Use a method without them, such as "
                "'sensitivity', and no `refit`."
            )
        self._seen.add(place)
        values = self.read(place, inputs, outputs)
        own = mask_of(inputs) if self.owner is None else self._owner_mask
        sums, samples = self.statistic(*values, self._mask(own, values[-1]))
        if self.found is not None:
            sums = sums + self.found[0]
        self.found = sums, samples
        if self.ends_pass:
            raise PassEnd

    def _mask(self, own: Tensor | None, hidden: Tensor) -> Tensor | None:
        """Returns the mask of the tokens of activations; None if all of them count."""
        if not self.masks:
            if self.padding_masks:
                raise ArgumentError(
                    f"The data have a padding mask, and convolutions read {self.name}. "
                    "Give data without a mask."
                )
            return None
        mask = self._data_mask(own)
        if mask is None or len(hidden.shape) < 3:  # one for each sample
            return None
        sizes = (*mask.shape[1:], *hidden.shape[1:-1])
        if None in sizes or math.prod(mask.shape[1:]) == math.prod(hidden.shape[1:-1]):
            return mask
        raise ArgumentError(
            f"The padding mask {tuple(mask.shape)} does not fit what {self.name} "
            f"reads, {tuple(hidden.shape)}. Give data without padding, and no mask."
        )

    def _data_mask(self, own: Tensor | None) -> Tensor | None:
        """Returns the data's padding mask of these tokens, else Keras's."""
        masks = self.padding_masks
        if len(masks) < 2:
            return next(iter(masks.values()), own)
        # An encoder's and a decoder's: "encoder_padding_mask", "encoder_layer_0/mlp".
        path = (self.owner or self.layers[0]).path
        mine = [m for n, m in masks.items() if n.partition("_")[0] in path]
        if len(mine) != 1:
            raise ArgumentError(
                f"The data have the padding masks {', '.join(masks)}, and the path of "
                f"{self.name} does not say which belongs to it. Use "
                "method='sensitivity'."
            )
        return mine[0]


def layer_capture(layer: keras.layers.Layer, statistic: Statistic) -> Capture:
    """Returns a capture of a layer's inputs and (first) outputs."""
    return Capture(
        layer.path,
        [layer],
        lambda _, inputs, outputs: (inputs, keras.tree.flatten(outputs)[0]),
        statistic,
    )


def kernel_capture(
    layer: keras.layers.Layer, read: Callable[[Tensor], Tensor], statistic: Statistic
) -> Capture:
    """Returns a capture of what a layer's kernel is multiplied with.

    `read` makes it, `(B, P, R)`, of the layer's inputs.
    """
    return Capture(
        layer.path, [layer], lambda _, x, made: (read(x),), statistic, masks=False
    )


def capture_of(group: Any, statistic: Statistic) -> Capture:
    """Returns the capture of the activations of a group's units."""
    if KINDS[group.kind].by_readers:
        places = group.read_places()

        def channels(place: int, inputs: Tensor, outputs: Any) -> tuple[Tensor]:
            layer, of_units = places[place]
            last = ops.moveaxis(inputs, channel_axis(layer, inputs), -1)
            taken = ops.take(last, of_units.T.ravel(), axis=-1)
            return (ops.reshape(taken, (ops.shape(inputs)[0], -1, len(of_units))),)

        layers = [layer for layer, _ in places]
        return Capture(group.name, layers, channels, statistic, masks=False)
    heads = group.kind == KV_GROUPS
    reader = group.readers[0] if heads else group.shown_by
    if reader is None or (heads and dense_of(reader) is not reader):
        raise ArgumentError(
            f"The hidden activations of {group.name} are the input of no single layer, "
            "so they cannot be measured. Use method='sensitivity', or leave it out."
        )

    def units(place: int, inputs: Tensor, outputs: Any) -> tuple[Tensor]:
        if isinstance(reader, FFNLayer):  # whose neurons are inside of it
            rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
            sizes = (*ops.shape(inputs)[:-1], reader.hidden_dim)
            inputs = ops.reshape(reader.hidden(rows), sizes)
        elif heads and len(stored_kernel(reader).shape) > 2:  # heads have an axis
            features = inputs.shape[-2] * inputs.shape[-1]
            inputs = ops.reshape(inputs, (*ops.shape(inputs)[:-2], features))
        elif heads and not (cut := group.kernel_cuts()[-1]).in_order:
            inputs = ops.take(inputs, cut.places.ravel().astype("int32"), axis=-1)
        return (inputs,)

    owner = group.layer if heads else None
    return Capture(group.name, [reader], units, statistic, owner)
