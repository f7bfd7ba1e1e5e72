"""What looks at the activations of a layer in a forward pass, for calibration."""

import abc
import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.groups.channel_operations import channel_axis
from keras_idea.groups.kinds import KINDS, KV_GROUPS
from keras_idea.keras_private.layers import first_argument, mask_of, stored_kernel
from keras_idea.keras_private.models import instead
from keras_idea.keras_private.resumed import PassEnd
from keras_idea.layers.ffn import FFNLayer
from keras_idea.typing import Tensor

#: Sums over the samples of a batch, and how many were summed.
Sums: TypeAlias = tuple[Tensor, Tensor]
#: Function of what a layer is called on, of what it returns, and of the padding mask or
#: None.
Statistic: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Sums]
#: Function of hidden activations `(..., R)`, and of the padding mask or None.
HiddenStatistic: TypeAlias = Callable[[Tensor, Tensor | None], Sums]
#: Makes what looks at some activations, and sums a statistic of them.
Look: TypeAlias = Callable[[HiddenStatistic], "Capture"]


class Capture(abc.ABC):
    """What keeps the statistics of the forward pass that it is traced in."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.padding_masks: dict[str, Tensor] = {}
        self.found: Sums | None = None
        self.ends_pass = False

    @abc.abstractmethod
    def looking(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: records while it is active."""

    def keep(self, sums: Sums) -> None:
        """Keeps what was found, and ends the pass if that was all to be found."""
        self.found = sums
        if self.ends_pass:
            raise PassEnd

    def mask(self, own: Tensor | None) -> Tensor | None:
        """The data's padding mask of what reaches it, else its own; once in a pass."""
        if self.found is not None:
            raise ArgumentError(
                f"{self.name} is called more than once in a forward pass, so there "
                "are no activations that are its own. Use a method without them, such "
                "as 'sensitivity', and no `refit`."
            )
        masks = self.padding_masks
        if len(masks) < 2:
            return next(iter(masks.values()), own)
        # An encoder's and a decoder's: "encoder_padding_mask", "encoder_layer_0/mlp".
        mine = [m for n, m in masks.items() if n.partition("_")[0] in self.path]
        if len(mine) != 1:
            raise ArgumentError(
                f"The data have the padding masks {', '.join(masks)}, and the path of "
                f"{self.name} does not tell which is its own. Use "
                "method='sensitivity'."
            )
        return mine[0]

    def refuse_masks(self) -> None:
        """Refuses the data's padding masks, of which convolutions know nothing."""
        if self.padding_masks:
            raise ArgumentError(
                f"The data have a padding mask, and convolutions read {self.name}, "
                "also where there is padding. Give data without a mask."
            )

    def token_mask(self, own: Tensor | None, hidden: Tensor) -> Tensor | None:
        """The mask of the tokens of hidden activations; None: each of them counts."""
        mask = self.mask(own)
        if mask is None or len(hidden.shape) < 3:  # one for each sample
            return None
        sizes = (*mask.shape[1:], *hidden.shape[1:-1])
        if None in sizes or math.prod(mask.shape[1:]) == math.prod(hidden.shape[1:-1]):
            return mask
        raise ArgumentError(
            f"The padding mask is of other tokens than {self.name} reads. Received: a "
            f"mask of shape {tuple(mask.shape)} for activations of shape "
            f"{tuple(hidden.shape)}. Give data without padding, and no mask."
        )


class LayerCapture(Capture):
    """Looks at what a layer is called on, and at what it returns."""

    def __init__(self, layer: keras.layers.Layer, statistic: Statistic) -> None:
        super().__init__(layer.path, layer.path)
        self.layer, self.statistic = layer, statistic

    def looking(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: records the layer's calls while it is active."""
        return _around(self.layer, after=self._see)

    def _see(self, inputs: Tensor, outputs: Any) -> None:
        outputs = keras.tree.flatten(outputs)[0]
        self.keep(self.statistic(inputs, outputs, self.mask(mask_of(inputs))))


class HeadsCapture(Capture):
    """Looks at what reads the heads of an attention layer, side by side."""

    def __init__(self, group: Any, statistic: HiddenStatistic) -> None:
        super().__init__(group.name, group.layer.path)
        self.owner, (self.reader, *_) = group.layer, group.weights.readers
        self.statistic = statistic
        self.owner_mask: Tensor | None = None

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Context manager: records the reader's calls while it is active."""
        with (
            _around(self.owner, before=self._note),
            _around(self.reader, after=self._see),
        ):
            yield

    def _note(self, inputs: Tensor) -> None:
        self.owner_mask = mask_of(inputs)

    def _see(self, inputs: Tensor, outputs: Any) -> None:
        if len(stored_kernel(self.reader).shape) > 2:  # heads have an axis
            features = inputs.shape[-2] * inputs.shape[-1]
            inputs = ops.reshape(inputs, (*ops.shape(inputs)[:-2], features))
        mask = self.token_mask(self.owner_mask, inputs)
        self.keep(self.statistic(inputs, mask))


class ChannelsCapture(Capture):
    """Looks at what the layers that read some channels are called on: sums of all."""

    def __init__(self, group: Any, statistic: HiddenStatistic) -> None:
        super().__init__(group.name, group.layer.path)
        self.read, self.statistic = group.weights.read_places(), statistic
        self._seen: set[int] = set()

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Context manager: records the readers' calls while it is active."""
        with contextlib.ExitStack() as scopes:
            for number, (layer, _) in enumerate(self.read):
                see = functools.partial(self._see, number)
                scopes.enter_context(_around(layer, after=see))
            yield

    def _see(self, number: int, inputs: Tensor, outputs: Any) -> None:
        self.refuse_masks()
        if self.found is None:
            self._seen.clear()
        elif number in self._seen:
            self.mask(None)  # which refuses a second call
        self._seen.add(number)
        layer, places = self.read[number]
        units, size = places.shape
        last = ops.moveaxis(inputs, channel_axis(layer, inputs), -1)
        taken = ops.take(last, places.T.ravel(), axis=-1)
        hidden = ops.reshape(taken, (ops.shape(inputs)[0], -1, units))
        sums, samples = self.statistic(hidden, None)
        if self.found is not None:
            sums = sums + self.found[0]
        self.keep((sums, samples))


class KernelCapture(Capture):
    """Looks at what the kernel of a layer that reads channels is multiplied with.

    `read` makes it, `(B, P, R)`, of what the layer is called on.
    """

    def __init__(
        self,
        layer: keras.layers.Layer,
        read: Callable[[Tensor], Tensor],
        statistic: HiddenStatistic,
    ) -> None:
        super().__init__(layer.path, layer.path)
        self.layer, self.read, self.statistic = layer, read, statistic

    def looking(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: records the layer's calls while it is active."""
        return _around(self.layer, before=self._see)

    def _see(self, inputs: Tensor) -> None:
        self.refuse_masks()
        self.mask(None)  # which refuses a second call
        self.keep(self.statistic(self.read(inputs), None))


class HiddenCapture(Capture):
    """Captures the hidden activations of an FFN, which one layer is called on."""

    def __init__(self, ffn: Any, statistic: HiddenStatistic) -> None:
        super().__init__(ffn.name, ffn.layer.path)
        self.reader, self.statistic = ffn.weights.shown_by, statistic

    def looking(self) -> contextlib.AbstractContextManager[None]:
        """Context manager: records the layer's calls while it is active."""
        if isinstance(self.reader, FFNLayer):
            return self._looking_inside(self.reader)
        return _around(self.reader, before=lambda x: self._see(x, mask_of(x)))

    @contextlib.contextmanager
    def _looking_inside(self, layer: FFNLayer) -> Iterator[None]:
        masks: list[Any] = [None]
        project = layer.project

        def watched(hidden: Tensor, axes: Sequence[Any]) -> Tensor:
            self._see(ops.reshape(hidden, (*axes, hidden.shape[-1])), masks[-1])
            return project(hidden, axes)

        with (
            _around(layer, before=lambda x: masks.append(mask_of(x))),
            instead(layer, "project", watched),
        ):
            yield

    def _see(self, hidden: Tensor, mask: Tensor | None) -> None:
        self.keep(self.statistic(hidden, self.token_mask(mask, hidden)))


def capture_of(group: Any, statistic: HiddenStatistic) -> Capture:
    """Returns the capture of the activations of a group's units."""
    if KINDS[group.kind].by_readers:
        return ChannelsCapture(group, statistic)
    if group.kind == KV_GROUPS:
        return HeadsCapture(group, statistic)
    if group.weights.shown_by is None:
        raise ArgumentError(
            f"The hidden activations of {group.name} are the input of no single layer, "
            "so they cannot be measured. Use method='sensitivity', or leave it out."
        )
    return HiddenCapture(group, statistic)


def _around(
    layer: keras.layers.Layer,
    before: Callable[[Tensor], None] = lambda inputs: None,
    after: Callable[[Tensor, Any], None] = lambda inputs, outputs: None,
) -> contextlib.AbstractContextManager[None]:
    """Context manager: functions see what a layer is called on, and returns."""
    call = layer.call

    def watched_call(*args: Any, **kwargs: Any) -> Any:
        inputs = first_argument(call, args, kwargs)
        before(inputs)
        outputs = call(*args, **kwargs)
        after(inputs, outputs)
        return outputs

    # Keras asks the signature of `call` for the arguments that it fills in.
    return instead(layer, "call", functools.wraps(call)(watched_call))
