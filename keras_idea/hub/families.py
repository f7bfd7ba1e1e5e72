"""The KerasHub families that this package knows: tables of what nothing else shows."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal

import keras

from keras_idea.errors import ArgumentError

#: The tokens of every vocabulary besides the special ones: all text has an id.
NUM_BYTES = 256


@dataclasses.dataclass(frozen=True)
class Untraced:
    """FFNs of a block that are not found by following the data.

    Attributes:
        names: str, the attributes up, gate (if it is not packed with up) and down.
        inside: str, attribute of a block that holds them; "": the block does.
        experts: bool, whether they are a mixture's experts: three-dimensional variables
            of a layer, the experts along the first axis.
        packing: how the gate is stored in the variable up. "halves": of neuron j of F
            it is F + j; "pairs": 2 j + 1, next to up's 2 j.
    """

    names: str
    inside: str = ""
    experts: bool = True
    packing: Literal["", "halves", "pairs"] = ""


_EXPERT = "_expert_feedforward_{}_dense"
_FUSED = Untraced(
    f"{_EXPERT.format('gate')} {_EXPERT.format('output')}",
    "mlp.expert_bank",
    packing="halves",
)
#: Class of the backbones -> the FFNs that its `transformer_layers` may hold.
UNTRACED = {
    # Its blocks multiply by `layer.kernel` themselves.
    "Gemma4Backbone": Untraced("gating_ffw gating_ffw_2 ffw_linear", experts=False),
    "MixtralBackbone": Untraced(
        " ".join(map(_EXPERT.format, ("gate", "intermediate", "output"))),
        "_sparse_moe_block.expert_bank",
    ),
    "QwenMoeBackbone": _FUSED,
    "Qwen3MoeBackbone": _FUSED,
    "Qwen3_5MoeBackbone": _FUSED,
    "GptOssBackbone": Untraced(
        "gate_up_proj down_proj", "sparse_moe_block.experts", packing="pairs"
    ),
}


@dataclasses.dataclass(frozen=True)
class ScratchSpec:
    """What makes a family's model and its tokenizer from nothing."""

    prefix: str  # `<prefix>Backbone` is the class of its backbones
    tokenizer: str  # "bpe" or "sentencepiece", what its tokenizer class reads
    # Those its tokenizer class demands; of SentencePiece by their ids, from 0.
    special_tokens: tuple[str, ...]
    needs_head_dim: bool = False  # whether its backbone must be given a head's size
    key_value_heads: int | None = None  # if a run does not say; None: as many as heads

    @property
    def smallest_vocabulary(self) -> int:
        """int, tokens of the byte-level tokenizer."""
        # SentencePiece writes a space as a piece of its own.
        space = self.tokenizer == "sentencepiece"
        return NUM_BYTES + space + len(self.special_tokens)


_LLAMA_TOKENS = ("<unk>", "<s>", "</s>")
_LLAMA3_TOKENS = (
    "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>"
)
_GEMMA_TOKENS = "<pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn>"
#: Name in a run's description -> how a run can begin with a model of the family.
# (`Any`, because the type checker cannot know that these have all parts.)
HUB_FAMILIES: Mapping[str, Any] = types.MappingProxyType(
    {
        spec.prefix.lower(): spec
        for spec in (
            ScratchSpec("Llama", "sentencepiece", _LLAMA_TOKENS),
            ScratchSpec("Llama3", "bpe", tuple(_LLAMA3_TOKENS.split())),
            ScratchSpec("Mistral", "sentencepiece", _LLAMA_TOKENS),
            ScratchSpec("Qwen", "bpe", ("<|endoftext|>",)),
            ScratchSpec(
                "Qwen3", "bpe", ("<|endoftext|>", "<|im_end|>"), needs_head_dim=True
            ),
            ScratchSpec("Phi3", "sentencepiece", ("<unk>", "<s>", "<|endoftext|>")),
            ScratchSpec(
                "Gemma",
                "sentencepiece",
                # KerasHub's class demands the first three, its templates the last two.
                tuple(_GEMMA_TOKENS.split()),
                needs_head_dim=True,
                key_value_heads=1,
            ),
        )
    }
)
_NEED_START = ("GemmaBackbone", "Gemma3Backbone", "Gemma4Backbone")


def is_backbone(layer: object) -> bool:
    """bool, whether `layer` is a KerasHub backbone."""
    return _is_of_hub(layer, "Backbone")


def is_task(layer: object) -> bool:
    """bool, whether `layer` is a KerasHub task, such as a `CausalLM`."""
    return _is_of_hub(layer, "Task")


def is_preprocessor(layer: object) -> bool:
    """bool, whether `layer` is a KerasHub preprocessor."""
    return _is_of_hub(layer, "Preprocessor")


def is_causal(layer: object) -> bool:
    """bool, whether `layer` is a KerasHub `CausalLM` without an encoder."""
    return _is_of_hub(layer, "CausalLM") and not _is_of_hub(layer, "Seq2SeqLM")


def needs_start(backbone: type) -> bool:
    """Whether released models with backbones of a class need the start token.

    Gemma 3 270M: 5.70 nats per token of WikiText-2 in windows of 256 without it, 4.35
    with it (6 windows, in transformers).
    """
    return any(_from_hub(c) and c.__name__ in _NEED_START for c in backbone.__mro__)


def check_family(backbone: keras.Model) -> None:
    """Rejects a backbone whose FFNs cannot be pruned."""
    why = why_refused(backbone)
    if why is not None:
        raise ArgumentError(f"{class_of_hub(backbone)} cannot be pruned: {why}.")


def why_refused(backbone: keras.Model) -> str | None:
    """Why the FFNs of a backbone cannot be pruned; None if they may be."""
    name = class_of_hub(backbone)
    if name == "Gemma3nBackbone":
        return (
            "its activation sparsity takes statistics over all neurons, so that a "
            "narrower model computes something else"
        )
    if name == "Gemma4Backbone" and backbone.enable_moe_block:
        return "it has a mixture of experts (enable_moe_block=True)"
    return None


def class_of_hub(backbone: keras.Model) -> str:
    """The name of a backbone's class, or of KerasHub's that it is derived from."""
    return next(c for c in type(backbone).__mro__ if _from_hub(c)).__name__


def _is_of_hub(layer: object, name: str) -> bool:
    # By name: to import keras_hub is to import TensorFlow.
    return any(_from_hub(c) and c.__name__ == name for c in type(layer).__mro__)


def _from_hub(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras_hub"
