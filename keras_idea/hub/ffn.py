"""The FFNs of one block of a KerasHub backbone."""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.hub.dense_matrices import DenseMatrices
from keras_idea.hub.expert_matrices import ExpertMatrices
from keras_idea.hub.families import ffn_layouts
from keras_idea.hub.family import FFNLayout
from keras_idea.keras_private.unlocked import unlocked, untrack
from keras_idea.layers.cut import Cut
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
    """One FFN that a layer of KerasHub's holds, or all the experts of a mixture.

    It gives a handle the attributes of `PrunableGatedFFN` that pruning needs.

    Attributes:
        owner: the Keras layer that holds its matrices; the pruning state hangs on it.
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
        return self.layout.calls_down and not self.layout.experts

    @property
    def converted(self) -> bool:
        """bool, whether a pruning state hangs on the owner."""
        return hasattr(self.owner, "neuron_state")

    @property
    def state(self) -> NeuronState:
        """The `NeuronState`, if it is converted."""
        return self.owner.neuron_state

    @property
    def layers(self) -> Sequence[keras.layers.Layer]:
        """The layers whose kernels its matrices are."""
        return self.held.layers

    @property
    def matrices(self) -> tuple[str, ...]:
        """Tuple of str, "up", "gate" and "down", or without the gate."""
        return GATED if self.layout.gate or self.layout.packing else UNGATED

    @property
    def hidden_dim(self) -> int:
        """int, neurons (of each expert) the kernels have places for."""
        return self.cuts()[0].neurons

    def cuts(self) -> list[Cut]:
        """How its neurons lie in its weights, the kernels first."""
        return self.held.cuts()

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells every layer around the kernels that they were narrowed."""
        self.held.set_hidden_dim(hidden_dim)
        argument = hidden_dim * self.layout.per_neuron
        for name in _WIDTH_ATTRIBUTES:
            if hasattr(self.owner, name):
                setattr(self.owner, name, argument)
        setattr(self.backbone, self.width_argument, argument)

    def convert(self, **state_arguments: Any) -> None:
        """Hangs a pruning state on the owner, and masks the down kernel by it."""
        state = NeuronState(**state_arguments, name="neuron_state")
        first = self.cuts()[0]
        kernel = first.variable.shape
        experts = None if first.group is None else kernel[first.group]
        unlocked(self.owner, setattr, "neuron_state", state)
        # In the owner's scope, so that no two states have the same path.
        with scope_at(self.owner.path):
            input_dim = kernel[first.weights_axis]
            state.build(self.hidden_dim, input_dim, len(self.matrices), experts)
        self.held.convert(state)

    def restore(self) -> None:
        """Undoes `convert`; the kernels stay as they are."""
        state = self.state
        self.held.restore()
        untrack(self.owner, state)
        unlocked(self.owner, delattr, "neuron_state")

    def check_convertible(self, row_reduce: str = "mean") -> None:
        """Refuses layers that cannot be converted.

        Args:
            row_reduce: str, as of `NeuronState`. Default "mean".

        Raises:
            ValueError: for layers of another kind, or converted already, or scores
                that experts do not keep.
        """
        if self.converted:
            raise ValueError(
                f"The FFN of '{self.owner.path}' is prunable already. Go on with it, "
                "or undo it first with keras_idea.strip(model)."
            )
        self.held.check(type(self.backbone).__name__, row_reduce)

    @property
    def held(self) -> DenseMatrices | ExpertMatrices:
        """What holds its matrices, and how."""
        layout = self.layout
        if layout.experts:
            given = filter(None, (layout.up, layout.gate, layout.down))
            return ExpertMatrices(self.owner, list(given), layout.packing)
        names = [getattr(layout, matrix) for matrix in self.matrices]
        layers = [operator.attrgetter(name)(self.owner) for name in names]
        return DenseMatrices(layers, self.matrices)


def hub_ffns(backbone: keras.Model) -> list[HubFFN]:
    """The FFNs of a backbone, converted or not, in its own order.

    Args:
        backbone: a KerasHub backbone of a family in the table.

    Returns:
        list of `HubFFN`.
    """
    layouts = ffn_layouts(backbone)
    return [
        HubFFN(owner, backbone, layout, stack)
        for stack in layouts[0].stacks
        for block in _blocks(backbone, stack)
        for layout, owner in _held_by(block, layouts)
    ]


def _held_by(
    block: keras.layers.Layer, layouts: Sequence[FFNLayout]
) -> list[tuple[FFNLayout, keras.layers.Layer]]:
    """The layouts that a block has FFNs of (one at least), and what holds them."""
    found, absent = [], None
    for layout in layouts:
        try:
            owner = block
            if layout.inside:
                owner = operator.attrgetter(layout.inside)(block)
            operator.attrgetter(layout.down)(owner)
        except AttributeError as error:
            absent = error
            continue
        found.append((layout, owner))
    if not found and absent is not None:
        raise absent
    return found


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
    return [ffn for ffn in ffns if ffn.converted and ffn.held.converted]
