"""The neurons of an FFN of this package, as a group."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import keras

from keras_idea.groups.cut import Cut
from keras_idea.groups.kinds import NEURONS
from keras_idea.layers.plain_ffns import PlainFFN


@dataclasses.dataclass(frozen=True)
class OwnGroup:
    """All that a layer's kernels hold; see `keras_idea.groups.kinds.Group`."""

    layer: Any
    kind = NEURONS
    makers: ClassVar[Sequence[keras.layers.Layer]] = ()
    readers: ClassVar[Sequence[keras.layers.Layer]] = ()

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the one layer."""
        return [self.layer]

    @property
    def preserves_zero(self) -> bool:
        """bool, whether a gate, or the activation itself, makes 0 of zeros."""
        gated = len(self.layer.matrices) > 2
        return gated or _of_zero(self.layer.activation) == 0

    @property
    def probed(self) -> keras.layers.Layer | None:
        """The layer, if it has no probe of its own."""
        return self.layer if isinstance(self.layer, PlainFFN) else None

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias of what it returns, or None."""
        bias: keras.Variable | None = self.layer.down_bias
        return bias

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels have places for."""
        return int(self.layer.hidden_dim)

    def cuts(self) -> list[Cut]:
        """How the neurons lie in the weights, the kernels first."""
        found: list[Cut] = self.layer.cuts()
        return found

    own_cuts = held_cuts = cuts

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layer that its kernels were narrowed."""
        self.layer.set_hidden_dim(hidden_dim)


def _of_zero(activation: Any) -> float:
    return float(keras.ops.convert_to_numpy(activation(keras.ops.zeros((1,))))[0])
