"""What is known of a KerasHub family: the parts of a row of the table of families."""

import dataclasses
from collections.abc import Mapping

from keras_idea.groups.cut import Packing

#: The tokens of every vocabulary besides the special ones: all text has an id.
NUM_BYTES = 256


@dataclasses.dataclass(frozen=True)
class FFNLayout:
    """Where the backbones of a family keep their FFNs.

    Attributes:
        up: str, attribute of the layer whose output is activated; it may be dotted.
        down: str, attribute of the layer back to the model's width.
        gate: str, attribute of the linear layer beside up; "": there is none.
        gate_if: str, attribute of the backbone that is False where there is none
            after all; "": there is no such.
        inside: str, attribute of a block that holds them; it may be dotted. "": the
            block does.
        stacks: dict, attribute of the backbone that lists blocks -> argument of its
            constructor that sets their width. The attribute may be dotted, and begin
            with a layer's name.
        per_neuron: int, how much of that argument a neuron takes.
        calls_down: bool, whether blocks call the down layer: then its input, the
            hidden activations, can be followed and measured.
        experts: bool, whether they are a mixture's experts: three-dimensional variables
            of a layer, the experts along the first axis. Default False.
        packing: how the gate lies in the variable `up`, which then is both; see `Cut`.
            "": it has a variable of its own.
        requires: dict, attribute of the backbone -> (the value it must have, what
            it means if it has another).
    """

    up: str
    down: str
    gate: str = ""
    gate_if: str = ""
    inside: str = ""
    stacks: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"transformer_layers": "intermediate_dim"}
    )
    per_neuron: int = 1
    calls_down: bool = True
    experts: bool = False
    packing: Packing = ""
    requires: Mapping[str, tuple[object, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ScratchSpec:
    """What must be known to make a family's model and its tokenizer.

    Attributes:
        tokenizer: "bpe" or "sentencepiece", what its tokenizer class reads.
        special_tokens: tuple of str, those its tokenizer class demands; of
            SentencePiece in the order of their ids, which begin at 0.
        needs_head_dim: bool, whether its backbone must be told the size of a head.
        key_value_heads: int or None, those it has where a run does not say; None: as
            many as heads.
    """

    tokenizer: str
    special_tokens: tuple[str, ...]
    needs_head_dim: bool = False
    key_value_heads: int | None = None

    @property
    def smallest_vocabulary(self) -> int:
        """int, tokens of the byte-level tokenizer."""
        # SentencePiece writes a space as a piece of its own.
        space = self.tokenizer == "sentencepiece"
        return NUM_BYTES + space + len(self.special_tokens)


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table.

    Attributes:
        prefix: str, of its KerasHub classes: `<prefix>Backbone`, and so on; or the
            name of an encoder that is a backbone.
        ffns: `FFNLayout`, or None if it has none that can be pruned.
        others: tuple of `FFNLayout`, of FFNs that some blocks have beside or instead.
        refused: str, why it has none; "": nobody has looked.
        from_nothing: `ScratchSpec`, or None if no run can begin with it.
        needs_start: bool, whether its released models were trained with the start token
            before every sequence, and lose much without it.
    """

    prefix: str
    ffns: FFNLayout | None = None
    others: tuple[FFNLayout, ...] = ()
    refused: str = ""
    from_nothing: ScratchSpec | None = None
    needs_start: bool = False

    @property
    def backbone(self) -> str:
        """str, the class of its backbones."""
        encoder = self.prefix.endswith("Encoder")
        return self.prefix if encoder else f"{self.prefix}Backbone"
