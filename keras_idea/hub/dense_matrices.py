"""Dense layers of somebody else's model, of which a pruning state masks the kernel.

Models that are not ours read `layer.kernel`, through the layer's own call or past
it. So the mask sits in the attribute: the layer's class becomes a subclass whose
`kernel` is the masked one inside a forward pass, and the variable outside.
"""

import dataclasses
import functools
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

import keras

from keras_idea.keras_private.call_context import in_forward_pass
from keras_idea.keras_private.layers import become, stored_kernel
from keras_idea.layers.cut import Cut
from keras_idea.layers.feed_forward import check_loaded_width, cuts_of
from keras_idea.layers.neuron_state import NeuronState
from keras_idea.typing import Tensor


@dataclasses.dataclass(frozen=True)
class DenseMatrices:
    """The matrices of one FFN that are the kernels of Dense or EinsumDense layers.

    Attributes:
        layers: list of the layers up, gate (if there is one) and down, built.
        names: tuple of str, what matrix each is.
    """

    layers: Sequence[keras.layers.Layer]
    names: Sequence[str]

    @property
    def converted(self) -> bool:
        """bool, whether they are those of an FFN that can be pruned."""
        return hasattr(self.layers[0], "_neuron_state")

    def cuts(self) -> list[Cut]:
        """How the neurons lie in kernels and biases."""
        kernels = [stored_kernel(layer) for layer in self.layers]
        return cuts_of(kernels, [layer.bias for layer in self.layers])

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their kernels were narrowed."""
        *entrances, down = self.layers
        for layer in entrances:
            if isinstance(layer, keras.layers.Dense):
                layer.units = hidden_dim
            else:
                shape = layer.partial_output_shape
                layer.partial_output_shape = (*shape[:-1], hidden_dim)
        if isinstance(down, keras.layers.Dense):
            down.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: hidden_dim})

    def convert(self, state: NeuronState) -> None:
        """Makes the layers some of an FFN that can be pruned, in place."""
        for name, layer in zip(self.names, self.layers, strict=True):
            base: Any = type(layer)
            become(layer, _converted_class(base, name == "down"))
            # Wrapped, or Keras would track the state as a part of this layer.
            layer._neuron_state = _Untracked(state)
            # Keras binds `quantize` to the object, so no subclass can override it.
            layer._stock_quantize = layer.quantize
            layer.quantize = functools.partial(_refuse, layer, "quantization")

    def restore(self) -> None:
        """Undoes `convert`, in place."""
        for layer in self.layers:
            layer.quantize = layer._stock_quantize
            del layer._neuron_state, layer._stock_quantize
            become(layer, type(layer)._stock_class)

    def check(self, backbone: str, row_reduce: str) -> None:
        """Refuses layers of another kind.

        Raises:
            ValueError: naming the layer.
        """
        for layer in self.layers:
            if not isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense)):
                raise ValueError(
                    f"Layer '{layer.path}' of {backbone} must be a Dense or "
                    f"EinsumDense layer. Received: {type(layer).__name__}."
                )


class _Untracked:
    def __init__(self, state: NeuronState) -> None:
        self.state = state


@functools.cache
def _converted_class(base: Any, is_down: bool) -> type:
    class Converted(base):  # type: ignore[misc]
        _stock_class = base

        def enable_lora(self, *args: object, **kwargs: object) -> None:
            _refuse(self, "LoRA")

        def load_own_variables(self, store: Mapping[str, Any]) -> None:
            axis = 0 if is_down else 1
            if "0" in store.keys() and len(store["0"].shape) == 2:
                widths = stored_kernel(self).shape[axis], store["0"].shape[axis]
                check_loaded_width(self.path, *widths)
            super().load_own_variables(store)

    class Masked(Converted):
        @property
        def kernel(self) -> Tensor:
            kernel = super().kernel
            if not in_forward_pass():
                return kernel
            return self._neuron_state.state.masked(kernel.value)

        def call(self, inputs: Tensor, *args: object, **kwargs: object) -> Tensor:
            # The down layer's inputs are the hidden activations.
            inputs = self._neuron_state.state.hidden(inputs)
            return super().call(inputs, *args, **kwargs)

        def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
            # As the model answers: a file of a masked model is then right for the
            # stock class too.
            values: dict[str, Any] = {}
            super().save_own_variables(values)
            state = self._neuron_state.state
            state.publish()
            values["0"] = state.answering(stored_kernel(self).value)
            for key, value in values.items():
                store[key] = value

    cls = Masked if is_down else Converted
    cls.__name__ = cls.__qualname__ = f"{cls.__name__}{base.__name__}"
    return cls


def _refuse(
    layer: keras.layers.Layer, what: str, *args: object, **kwargs: object
) -> NoReturn:
    raise ValueError(
        f"Layer '{layer.path}' is being pruned, which {what} would hinder. Finish "
        "the pruning first: keras_idea.compact(model), or keras_idea.strip(model)."
    )
