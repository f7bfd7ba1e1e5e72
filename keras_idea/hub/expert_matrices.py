"""The experts of a mixture, of which a pruning state masks the down matrices.

KerasHub keeps all experts of a block in variables of one layer, with no layers in it:
`(E, D, F)`, or two matrices in `(E, D, 2 F)`, and `(E, F, D)`. All experts have one
width, so neurons are ranked among those of their own expert alone.
"""

import dataclasses
import functools
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import keras

from keras_idea.keras_private.call_context import in_forward_pass
from keras_idea.keras_private.layers import become
from keras_idea.layers.cut import Cut, Packing
from keras_idea.layers.feed_forward import check_loaded_width
from keras_idea.layers.neuron_state import NeuronState
from keras_idea.typing import Tensor


@dataclasses.dataclass(frozen=True)
class ExpertMatrices:
    """The matrices of all experts that one layer holds.

    Attributes:
        owner: the Keras layer, built.
        names: list of str, its attributes up, gate (if it is not packed with up) and
            down.
        packing: see `Cut`, of up and gate.
    """

    owner: keras.layers.Layer
    names: Sequence[str]
    packing: Packing = ""

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The one layer."""
        return [self.owner]

    @property
    def converted(self) -> bool:
        """bool, whether they can be pruned."""
        return hasattr(type(self.owner), "_stock_class")

    def cuts(self) -> list[Cut]:
        """How the neurons lie in the variables, and in a bias of the first ones."""
        *entrances, down = [vars(self.owner)[name] for name in self.names]
        biases = [vars(self.owner).get(f"{name}_bias") for name in self.names[:-1]]
        return [
            *(Cut(kernel, 2, 0, self.packing) for kernel in entrances),
            Cut(down, 1, 0),
            *(Cut(bias, 1, 0, self.packing) for bias in biases if bias is not None),
        ]

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """There is nothing to tell besides what every owner is told."""

    def convert(self, state: NeuronState) -> None:
        """Makes the layer one whose experts can be pruned, in place."""
        base: Any = type(self.owner)
        become(self.owner, _converted_class(base, self.names[-1]))

    def restore(self) -> None:
        """Undoes `convert`, in place."""
        become(self.owner, type(self.owner)._stock_class)

    def check(self, backbone: str, row_reduce: str) -> None:
        """Refuses scores that experts do not keep.

        Raises:
            ValueError: if `row_reduce` is not "mean".
        """
        if row_reduce != "mean":
            raise ValueError(
                f"`row_reduce` must be 'mean' for the experts of {backbone}: their "
                "scores are kept by neuron, not by weight. Received: "
                f"row_reduce={row_reduce!r}."
            )


@functools.cache
def _converted_class(base: Any, down: str) -> type:
    class Experts(base):  # type: ignore[misc]
        _stock_class = base

        def load_own_variables(self, store: Mapping[str, Any]) -> None:
            place = str(_place(self, down))
            if place in store.keys() and len(store[place].shape) == 3:
                here, found = vars(self)[down].shape[1], store[place].shape[1]
                check_loaded_width(self.path, here, found)
            super().load_own_variables(store)

        def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
            # As the model answers: a file of a masked model is then right for the
            # stock class too.
            values: dict[str, Any] = {}
            super().save_own_variables(values)
            self.neuron_state.publish()
            kernel = vars(self)[down].value
            values[str(_place(self, down))] = self.neuron_state.answering(kernel)
            for key, value in values.items():
                store[key] = value

    def masked(self: Any) -> keras.Variable | Tensor:
        kernel = vars(self)[down]
        if not in_forward_pass():
            return kernel
        return self.neuron_state.masked(kernel.value)

    setattr(Experts, down, property(masked))
    Experts.__name__ = Experts.__qualname__ = f"Masked{base.__name__}"
    return Experts


def _place(layer: keras.layers.Layer, down: str) -> int:
    """Which of the variables that a layer saves is the one of an attribute."""
    kernel = vars(layer)[down]
    return next(i for i, v in enumerate(layer.variables) if v is kernel)
