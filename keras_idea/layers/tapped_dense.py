"""Dense layers of somebody else's model, their kernels tapped.

Models that are not ours read `layer.kernel`, through the layer's own call or past
it. So the tap sits in the attribute: the layer's class becomes a subclass whose
`kernel` is the tapped one inside a forward pass, and the variable outside.
"""

import functools
from typing import Any

from keras_idea.layers.call_context import in_forward_pass


def tap_kernel(layer, tap, hidden=None):
    """Makes a layer's `kernel` go through `tap` in every forward pass, in place.

    Args:
        layer: a built `Dense` or `EinsumDense` layer.
        tap: function of the kernel's value, as `NeuronState.tap`.
        hidden: function of the layer's input, as `NeuronState.hidden`, that the
            input goes through when the layer is called; None: it does not.
    """
    base: Any = type(layer)
    layer.__class__ = _tapped_class(base)
    layer._tap, layer._hidden = tap, hidden
    # Keras binds `quantize` to the object, so no subclass can override it.
    layer._stock_quantize = layer.quantize
    layer.quantize = functools.partial(_refuse, layer, "quantization")


def untap_kernel(layer):
    """Undoes `tap_kernel`, in place."""
    layer.quantize = layer._stock_quantize
    del layer._tap, layer._hidden, layer._stock_quantize
    layer.__class__ = type(layer).__base__


def is_tapped(layer):
    """bool, whether the kernel of `layer` is tapped."""
    return hasattr(layer, "_tap")


@functools.cache
def _tapped_class(base: Any):
    class Tapped(base):  # type: ignore[misc]
        @property
        def kernel(self):
            kernel = super().kernel
            return self._tap(kernel.value) if in_forward_pass() else kernel

        def call(self, inputs, *args, **kwargs):
            if self._hidden is not None:
                inputs = self._hidden(inputs)
            return super().call(inputs, *args, **kwargs)

        def save_own_variables(self, store):
            # As the forward pass uses it: a checkpoint of a masked model is then
            # right for the stock class too.
            values: dict[str, Any] = {}
            super().save_own_variables(values)
            values["0"] = self._tap(self._kernel.value)
            for key, value in values.items():
                store[key] = value

        def enable_lora(self, *args, **kwargs):
            _refuse(self, "LoRA")

    Tapped.__name__ = Tapped.__qualname__ = f"Tapped{base.__name__}"
    return Tapped


def _refuse(layer, what, *args, **kwargs):
    raise ValueError(
        f"Layer '{layer.path}' is being pruned, which {what} would hinder. Finish "
        "the pruning first: keras_idea.compact(model), or keras_idea.strip(model)."
    )
