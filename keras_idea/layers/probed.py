"""Layers whose hidden activations a pruning method looks at, as long as it does.

While a method measures or learns, a probe hangs in the way of the hidden activations:
the layer's class becomes a subclass that passes them through it, and the probe's
variables are the layer's. At all other times the layers are what they were.
"""

import functools
from collections.abc import MutableMapping
from typing import Any

import keras

from keras_idea.groups.state import NeuronState
from keras_idea.keras_private.call_context import mask_of
from keras_idea.keras_private.layers import become, stored_kernel, unlocked, untrack
from keras_idea.layers.plain_ffns import PlainFFN
from keras_idea.typing import Tensor


def measure(layer: keras.layers.Layer, state: NeuronState) -> None:
    """Has a layer's hidden activations pass through the probe of a state.

    The layer is a plain FFN, or the Dense or EinsumDense one that reads the neurons.
    """
    base: Any = type(layer)
    become(layer, _measured_class(base))
    # Wrapped, or Keras would track the state as a part of the layer; the probe is one.
    layer._measured_by = _Untracked(state)
    unlocked(layer, setattr, "_probe", state.probe)


def end_measuring(layer: keras.layers.Layer) -> None:
    """Undoes `measure`."""
    untrack(layer, layer._measured_by.state.probe)
    unlocked(layer, delattr, "_probe")
    del layer._measured_by
    become(layer, type(layer)._stock_class)


def is_measured(layer: keras.layers.Layer) -> bool:
    """bool, whether `measure` was called last."""
    return hasattr(type(layer), "_stock_class")


class _Untracked:
    def __init__(self, state: NeuronState) -> None:
        self.state = state


@functools.cache
def _measured_class(base: Any) -> type:
    class Measured(base):  # type: ignore[misc]
        _stock_class = base

        def call(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            state = self._measured_by.state
            if not issubclass(base, PlainFFN):
                # The inputs of the layer that reads them are the hidden activations.
                hidden = state.hidden(inputs, mask=mask_of(inputs))
                return super().call(hidden, *args, **kwargs)
            hidden = functools.partial(state.hidden, mask=mask_of(inputs))
            return self._feed_forward(inputs, hidden=hidden)

        def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
            # As the model answers: a file is then right for the stock class too.
            values: dict[str, Any] = {}
            super().save_own_variables(values)
            last = isinstance(self, PlainFFN) and len(self.matrices) - 1
            down = self.down_kernel if last else stored_kernel(self)
            place = str(int(last))
            values[place] = self._measured_by.state.effective_down(down.value)
            for key, value in values.items():
                store[key] = value

    # Files name the stock class.
    Measured.__name__, Measured.__qualname__ = base.__name__, base.__qualname__
    Measured.__module__ = base.__module__
    return Measured
