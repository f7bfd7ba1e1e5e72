"""The FFN of one block of a KerasHub backbone."""

import dataclasses
import functools
import operator
from typing import Any

import keras

from keras_idea.hub.families import ffn_layout
from keras_idea.hub.family import FFNLayout
from keras_idea.hub.masked_dense import convert_dense, is_converted, restore_dense
from keras_idea.keras_private.layers import stored_kernel
from keras_idea.keras_private.unlocked import unlocked, untrack
from keras_idea.layers.feed_forward import neuron_axes
from keras_idea.layers.ffn_arguments import GATED, UNGATED
from keras_idea.layers.neuron_state import NeuronState, scope_at

# What the layers that hold an FFN call its width.
_WIDTH_ATTRIBUTES = (
    "intermediate_dim",
    "intermediate_size",
    "mlp_dim",
    "actual_intermediate_dim",
)


@dataclasses.dataclass(frozen=True)
class HubFFN:
    """One FFN: two or three Dense or EinsumDense layers that another one holds.

    It gives a handle the attributes of `PrunableGatedFFN` that pruning needs.

    Attributes:
        owner: the Keras layer that holds them; the pruning state hangs on it.
        backbone: the KerasHub backbone around it.
        layout: `FFNLayout`, where its family keeps them.
        stack: str, the attribute of the backbone that lists its block.
    """

    owner: keras.layers.Layer
    backbone: keras.Model
    layout: FFNLayout
    stack: str

    @property
    def width_argument(self) -> str:
        """str, the argument of the backbone that sets its width."""
        return self.layout.stacks[self.stack]

    @property
    def shows_hidden(self) -> bool:
        """bool, whether its hidden activations pass through the state."""
        return self.layout.calls_down

    @property
    def converted(self) -> bool:
        """bool, whether a pruning state hangs on the owner."""
        return hasattr(self.owner, "neuron_state")

    @property
    def state(self) -> NeuronState:
        """The `NeuronState`, if it is converted."""
        return self.owner.neuron_state

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The layers up, gate (if there is one) and down."""
        names = [getattr(self.layout, matrix) for matrix in self.matrices]
        return [operator.attrgetter(name)(self.owner) for name in names]

    @property
    def matrices(self) -> tuple[str, ...]:
        """Tuple of str, "up", "gate" and "down", or without the gate."""
        return GATED if self.layout.gate else UNGATED

    @property
    def hidden_dim(self) -> int:
        """int, neurons the kernels have places for."""
        return stored_kernel(self.layers[0]).shape[1]

    def weights_with_axes(self) -> list[tuple[keras.Variable, int | None]]:
        """List of (variable, axis of its neurons or None), the kernels first."""
        kernels = [stored_kernel(layer) for layer in self.layers]
        biases = [layer.bias for layer in self.layers]
        pairs = zip([*kernels, *biases], neuron_axes(self.matrices), strict=True)
        return [(variable, axis) for variable, axis in pairs if variable is not None]

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells every layer around the kernels that they were narrowed."""
        *entrances, down = self.layers
        for layer in entrances:
            if isinstance(layer, keras.layers.Dense):
                layer.units = hidden_dim
            else:
                shape = layer.partial_output_shape
                layer.partial_output_shape = (*shape[:-1], hidden_dim)
        if isinstance(down, keras.layers.Dense):
            down.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: hidden_dim})
        argument = hidden_dim * self.layout.per_neuron
        for name in _WIDTH_ATTRIBUTES:
            if hasattr(self.owner, name):
                setattr(self.owner, name, argument)
        setattr(self.backbone, self.width_argument, argument)

    def convert(self, **state_arguments: Any) -> None:
        """Hangs a pruning state on the owner, and masks the down kernel by it."""
        state = NeuronState(**state_arguments, name="neuron_state")
        unlocked(self.owner, setattr, "neuron_state", state)
        # In the owner's scope, so that no two states have the same path.
        with scope_at(self.owner.path):
            input_dim = stored_kernel(self.layers[0]).shape[0]
            state.build(self.hidden_dim, input_dim, len(self.matrices))
        for matrix, layer in zip(self.matrices, self.layers, strict=True):
            convert_dense(layer, state, matrix)

    def restore(self) -> None:
        """Undoes `convert`; the kernels stay as they are."""
        state = self.state
        for layer in self.layers:
            restore_dense(layer)
        untrack(self.owner, state)
        unlocked(self.owner, delattr, "neuron_state")

    def check_convertible(self) -> None:
        """Refuses layers that cannot be converted.

        Raises:
            ValueError: for layers of another kind, or converted already.
        """
        if self.converted:
            raise ValueError(
                f"The FFN of '{self.owner.path}' is prunable already. Go on with it, "
                "or undo it first with keras_idea.strip(model)."
            )
        for layer in self.layers:
            name = f"Layer '{layer.path}' of {type(self.backbone).__name__}"
            if not isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense)):
                raise ValueError(
                    f"{name} must be a Dense or EinsumDense layer. Received: "
                    f"{type(layer).__name__}."
                )


def hub_ffns(backbone: keras.Model) -> list[HubFFN]:
    """The FFNs of a backbone, converted or not, in its own order.

    Args:
        backbone: a KerasHub backbone of a family in the table.

    Returns:
        list of `HubFFN`.
    """
    layout = ffn_layout(backbone)
    return [
        HubFFN(
            getattr(block, layout.inside) if layout.inside else block,
            backbone,
            layout,
            stack,
        )
        for stack in layout.stacks
        for block in _blocks(backbone, stack)
    ]


def _blocks(backbone: keras.Model, stack: str) -> list[keras.layers.Layer]:
    first, *rest = stack.split(".")
    held = getattr(backbone, first, None)
    if held is None:  # some encoders are layers only
        held = backbone.get_layer(first)
    return functools.reduce(getattr, rest, held)


def converted_ffns(backbone: keras.Model) -> list[HubFFN]:
    """As `hub_ffns`, of those that are converted; empty for any other family."""
    try:
        ffns = hub_ffns(backbone)
    except ValueError:
        return []
    return [ffn for ffn in ffns if ffn.converted and is_converted(ffn.layers[0])]
