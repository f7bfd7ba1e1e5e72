"""The FFNs of a KerasHub backbone, as the table of families has them."""

import dataclasses
import functools
import operator
from collections.abc import Sequence

import keras

from keras_idea._graph.group import Group, group_of_dense
from keras_idea._groups.experts import ExpertGroup
from keras_idea.hub.families import FFNLayout, ffn_layouts

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

    `stack` is the attribute of the backbone that lists its block.
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
    def traceable(self) -> bool:
        """bool, whether it is found by following the data through its layers."""
        return self.layout.calls_down and not self.layout.experts

    @property
    def layers(self) -> Sequence[keras.layers.Layer]:
        """The layers whose kernels its matrices are."""
        return self.group.layers

    @property
    def hidden_dim(self) -> int:
        """int, neurons (of each expert) the kernels have places for."""
        return self.group.hidden_dim

    def tell_width(self) -> None:
        """Has its layer and its backbone say how wide the kernels are now."""
        argument = self.hidden_dim * self.layout.per_neuron
        for name in _WIDTH_ATTRIBUTES:
            if hasattr(self.owner, name):
                setattr(self.owner, name, argument)
        setattr(self.backbone, self.width_argument, argument)

    @property
    def group(self) -> Group | ExpertGroup:
        """What holds its matrices, and how."""
        layout = self.layout
        names = [name for name in (layout.up, layout.gate, layout.down) if name]
        if layout.experts:
            return ExpertGroup(self.owner, names, layout.packing)
        *makers, reader = [operator.attrgetter(name)(self.owner) for name in names]
        return group_of_dense(makers, reader, layout.calls_down)


def hub_ffns(backbone: keras.Model) -> list[HubFFN]:
    """The FFNs of a backbone of a family in the table, in its own order."""
    layouts = ffn_layouts(backbone)
    return [
        HubFFN(owner, backbone, layout, stack)
        for stack in layouts[0].stacks
        for block in _blocks(backbone, stack)
        for layout, owner in _held_by(block, layouts)
    ]


def known_ffns(backbone: keras.Model) -> list[HubFFN]:
    """As `hub_ffns`; empty for a backbone that no row knows, or that has none."""
    try:
        return hub_ffns(backbone)
    except ValueError:
        return []


def _held_by(
    block: keras.layers.Layer, layouts: Sequence[FFNLayout]
) -> list[tuple[FFNLayout, keras.layers.Layer]]:
    """The layouts that a block has FFNs of (one at least), and what holds them."""
    found, absent = [], None
    for layout in layouts:
        try:
            inside = layout.inside
            owner = operator.attrgetter(inside)(block) if inside else block
            operator.attrgetter(layout.down)(owner)
            found.append((layout, owner))
        except AttributeError as error:
            absent = error
    if not found and absent is not None:
        raise absent
    return found


def _blocks(backbone: keras.Model, stack: str) -> list[keras.layers.Layer]:
    first, *rest = stack.split(".")
    held = getattr(backbone, first, None)
    if held is None:  # some encoders are layers only
        held = backbone.get_layer(first)
    return functools.reduce(getattr, rest, held)
