"""The neurons of the experts of a mixture that one layer holds."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import keras

from keras_idea._groups.cut import Cut, Packing
from keras_idea._groups.kinds import NEURONS


@dataclasses.dataclass(frozen=True)
class ExpertGroup:
    """The matrices of all experts, in variables of one layer with no layers in it.

    They are `(E, D, F)`, or two matrices in `(E, D, 2 F)`, and `(E, F, D)`. All experts
    have one width, so neurons are ranked among those of their own expert alone. `names`
    are the owner's attributes up, gate (if it is not packed with up) and down.
    """

    owner: keras.layers.Layer
    names: Sequence[str]
    packing: Packing = ""
    kind = NEURONS
    preserves_zero = True  # whatever the gate, a neuron of zeros is 0
    makers: ClassVar[Sequence[keras.layers.Layer]] = ()
    readers: ClassVar[Sequence[keras.layers.Layer]] = ()
    shown_by = reader_bias = None

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the one layer."""
        return [self.owner]

    @property
    def hidden_dim(self) -> int:
        """int, neurons of each expert that the kernels have places for."""
        return self.cuts()[0].neurons

    def cuts(self) -> list[Cut]:
        """How the neurons lie in the variables, and in a bias of the first ones."""
        *entrances, down = [vars(self.owner)[name] for name in self.names]
        biases = [vars(self.owner).get(f"{name}_bias") for name in self.names[:-1]]
        return [
            *(Cut(kernel, 2, 0, self.packing) for kernel in entrances),
            Cut(down, 1, 0),
            *(
                Cut(bias, 1, 0, self.packing, is_bias=True)
                for bias in biases
                if bias is not None
            ),
        ]

    own_cuts = held_cuts = cuts

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Does nothing: the layer that holds this one stores the width."""
