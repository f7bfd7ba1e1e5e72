"""The heads of an attention layer that holds its projections.

Shapes: F key/value heads, each with G query heads; D features of the residual stream, d
of a head. Kernels of queries are `(D, F G, d)`, of keys and values `(D, F, d)`, of what
reads the heads `(F G, d, D)`; in Dense layers the features of heads lie side by side.
"""

import dataclasses
from collections.abc import Sequence

import keras

from keras_idea._groups.cut import Cut
from keras_idea._groups.kinds import KV_GROUPS
from keras_idea._keras.attention import set_numbers_of_heads
from keras_idea._keras.layers import renew_head_shapes, stored_kernel


@dataclasses.dataclass(frozen=True)
class AttentionGroup:
    """Key/value heads, each with the query heads that read it: one is pruned whole.

    Attributes:
        owner: the attention layer, built.
        makers: list of the Dense or EinsumDense layers that make queries, keys, values
            and (where there is one) gates: those of a head are made by each.
        reader: the layer that reads the heads.
        query_heads: int, query heads of a key/value head.
        width: int, features of a head that a Dense layer holds side by side; 1 where
            heads have an axis of their own.
        sinks: variable with a number of each query head, or None.
        holders: list of layers around the owner that know the numbers of heads.
    """

    owner: keras.layers.Layer
    makers: Sequence[keras.layers.Layer]
    reader: keras.layers.Layer
    query_heads: int
    width: int = 1
    sinks: keras.Variable | None = None
    holders: Sequence[keras.layers.Layer] = ()
    kind = KV_GROUPS
    preserves_zero = True  # a head that nobody reads has no gradient
    shown_by = None  # a head has several activations

    @property
    def readers(self) -> list[keras.layers.Layer]:
        """List of the one layer."""
        return [self.reader]

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias of the reader, or None."""
        return self.reader.bias

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the layers, the makers first."""
        return [*self.makers, self.reader]

    @property
    def hidden_dim(self) -> int:
        """int, key/value heads that the kernels have places for."""
        return self._cut(self.makers[1]).neurons

    @property
    def head_dim(self) -> int:
        """int, features of a key."""
        key = self.makers[1]
        heads_apart = isinstance(key, keras.layers.EinsumDense)
        return key.partial_output_shape[-1] if heads_apart else self.width

    def cuts(self) -> list[Cut]:
        """How the heads lie in the layers' weights, the kernels first."""
        cuts = [self._cut(layer) for layer in self.layers]
        cuts += [
            Cut(layer.bias, 0, size=self._size(layer), is_bias=True)
            for layer in self.makers
            if layer.bias is not None
        ]
        if self.sinks is not None:
            cuts.append(Cut(self.sinks, 0, size=self.query_heads, is_bias=True))
        return cuts

    own_cuts = held_cuts = cuts

    def _size(self, layer: keras.layers.Layer) -> int:
        shared = layer in self.makers[1:3]  # keys and values
        return self.width * (1 if shared else self.query_heads)

    def _cut(self, layer: keras.layers.Layer) -> Cut:
        axis = _head_axis(layer, reads=layer is self.reader)
        return Cut(stored_kernel(layer), axis, size=self._size(layer))

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that there are fewer heads."""
        for layer in self.layers:
            reads = layer is self.reader
            renew_head_shapes(layer, hidden_dim * self._size(layer), reads)
        for layer in (self.owner, *self.holders):
            counts = hidden_dim * self.query_heads, hidden_dim
            set_numbers_of_heads(layer, *counts, self.head_dim)


def _head_axis(layer: keras.layers.Layer, reads: bool) -> int:
    """The axis of a kernel along which the heads lie that its layer makes, or reads."""
    if isinstance(layer, keras.layers.Dense):
        return 0 if reads else 1
    inputs, kernel, outputs = layer.equation.replace("->", ",").split(",")
    return kernel.index((inputs if reads else outputs)[-2])
