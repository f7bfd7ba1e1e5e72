"""The KerasHub families that this package knows: tables of data."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import keras

from keras_idea._groups.cut import Packing
from keras_idea.errors import ArgumentError

#: The tokens of every vocabulary besides the special ones: all text has an id.
NUM_BYTES = 256


@dataclasses.dataclass(frozen=True)
class FFNLayout:
    """Where the backbones of a family keep their FFNs; names may be dotted."""

    up: str  # attribute of the layer whose output is activated
    down: str  # of the layer back to the model's width
    gate: str = ""  # of the linear layer beside up; "": there is none
    gate_if: str = ""  # attribute of the backbone that is False without a gate
    inside: str = ""  # attribute of a block that holds them; "": the block does
    # Attributes of the backbone that list blocks, which may begin with a layer's name.
    stacks: tuple[str, ...] = ("transformer_layers",)
    # Whether blocks call the down layer, so that its input can be followed.
    calls_down: bool = True
    # Whether they are a mixture's experts: three-dimensional variables of a layer, the
    # experts along the first axis.
    experts: bool = False
    packing: Packing = ""  # how the gate lies in the variable `up`; see `Cut`
    # Attribute of the backbone -> (the value it must have, what another one means).
    requires: Mapping[str, tuple[object, str]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ScratchSpec:
    """What makes a family's model and its tokenizer from nothing."""

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


@dataclasses.dataclass(frozen=True)
class Family:
    """A row of the table."""

    prefix: str  # `<prefix>Backbone` is its class; or the name of an encoder
    layouts: tuple[FFNLayout, ...] = ()  # of several, a block has some
    refused: str = ""  # why it has none
    from_nothing: ScratchSpec | None = None  # None: no run can begin with it
    # Whether released models were trained with the start token before every sequence.
    needs_start: bool = False


def _ffn(names: str, **options: Any) -> FFNLayout:
    """A layout by the names of up, down and gate; `stacks` are names too."""
    if "stacks" in options:
        options["stacks"] = tuple(options["stacks"].split())
    up, down, *gate = names.split()
    return FFNLayout(up, down, "".join(gate), **options)


_UP, _DOWN = "_feedforward_intermediate_dense", "_feedforward_output_dense"
_LLAMA = f"_feedforward_gate_dense {_DOWN} {_UP}"
_PUBLIC_UP, _PUBLIC_DOWN = _UP.removeprefix("_"), _DOWN.removeprefix("_")
_GEMMA = "gating_ffw ffw_linear gating_ffw_2"
_PROJ = "gate_proj down_proj up_proj"
_EXPERT = "_expert_feedforward_gate_dense _expert_feedforward_output_dense"
_TWO_STACKS = "encoder_transformer_layers decoder_transformer_layers"
# Mixtures: both matrices of an expert that tokens come to are one variable.
_FUSED = _ffn(
    _EXPERT,
    inside="mlp.expert_bank",
    experts=True,
    packing="halves",
)
# What all tokens go through: a block without experts, or an expert beside them.
_DENSE = _ffn(_LLAMA, inside="mlp")
_SHARED = _ffn(_LLAMA, inside="mlp.shared_expert_dense")
_SHARED_3_5 = _ffn(_LLAMA, inside="mlp.shared_expert")
_ENCODER = "encoder_layers"
_VIT, _DEIT = "vit_encoder.encoder_layers", "deit_encoder.encoder_layers"
_GEMMA4 = {
    "enable_moe_block": (False, "it has a mixture of experts"),
    "use_double_wide_mlp": (False, "some of its FFNs are twice as wide as the others"),
}
_NOT_SWIGLU = "its gate and its up matrix are one, and its config holds another number"

# Prefixes -> where their backbones keep the FFNs. Gemma and Gemma2 are one class.
_LAYOUTS: tuple[tuple[str, FFNLayout, *tuple[FFNLayout, ...]], ...] = (
    ("Llama Llama3 Mistral Qwen Qwen3 Qwen3_5", _ffn(_LLAMA)),
    ("Phi3", _ffn(f"feedforward_gate_dense {_PUBLIC_DOWN} {_PUBLIC_UP}")),
    ("Gemma", _ffn(_GEMMA)),
    ("Gemma3", _ffn(_GEMMA)),
    # It multiplies by `layer.kernel` itself.
    ("Gemma4", _ffn(_GEMMA, calls_down=False, requires=_GEMMA4)),
    ("SmolLM3", _ffn(_PROJ, inside="mlp")),
    (
        "T5",
        _ffn(
            "input_projector output_projector gate_projector",
            gate_if="use_gated_activation",
            stacks=_TWO_STACKS,
        ),
    ),
    (
        "T5Gemma",
        _ffn(
            _PROJ,
            inside="mlp",
            stacks="encoder_layers decoder_layers",
        ),
    ),
    (
        "EdRec",
        _ffn(
            "up_proj down_proj gate_proj",
            inside="mlp",
            stacks="encoder_layers decoder_layers",
        ),
    ),
    (
        "GPT2 OPT GPTNeoX Bert Roberta XLMRoberta DistilBert Electra DebertaV3",
        _ffn(f"{_UP} {_DOWN}"),
    ),
    ("Bart Whisper", _ffn(f"{_UP} {_DOWN}", stacks=_TWO_STACKS)),
    ("ESM RoformerV2", _ffn(f"{_PUBLIC_UP} {_PUBLIC_DOWN}")),
    ("Bloom", _ffn("_mlp_intermediate_dense _mlp_output_dense")),
    ("Falcon", _ffn("dense_h_to_4h dense_4h_to_h")),
    ("FNet", _ffn("_intermediate_dense _output_dense")),
    ("ViT", _ffn("dense_1 dense_2", inside="mlp", stacks=_VIT)),
    ("DeiT", _ffn("mlp.dense output_layer.dense", stacks=_DEIT)),
    (
        "DINOV2",
        _ffn(
            "fc1 fc2",
            inside="mlp",
            stacks="encoder.layers",
            requires={"use_swiglu_ffn": (False, _NOT_SWIGLU)},
        ),
    ),
    ("SigLIPTextEncoder", _ffn("fc1 fc2", inside="mlp", stacks=_ENCODER)),
    (
        "CLIPTextEncoder MetaCLIP2TextEncoder",
        _ffn("dense_1 dense_2", stacks=_ENCODER),
    ),
    (
        "Mixtral",
        _ffn(
            f"{_EXPERT} _expert_feedforward_intermediate_dense",
            inside="_sparse_moe_block.expert_bank",
            experts=True,
        ),
    ),
    ("QwenMoe", _FUSED, _SHARED, _DENSE),
    ("Qwen3Moe", _FUSED, _DENSE),
    (
        "GptOss",
        _ffn(
            "gate_up_proj down_proj",
            inside="sparse_moe_block.experts",
            experts=True,
            packing="pairs",
        ),
    ),
    ("Qwen3_5Moe", _FUSED, _SHARED_3_5),
)
_REFUSED = {
    "Gemma3n": "its activation sparsity takes statistics over all neurons, so that a "
    "narrower model computes something else"
}
_LLAMA_TOKENS = ("<unk>", "<s>", "</s>")
_LLAMA3_TOKENS = (
    "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>"
)
_FROM_NOTHING = {
    "Llama": ScratchSpec("sentencepiece", _LLAMA_TOKENS),
    "Llama3": ScratchSpec("bpe", tuple(_LLAMA3_TOKENS.split())),
    "Mistral": ScratchSpec("sentencepiece", _LLAMA_TOKENS),
    "Qwen": ScratchSpec("bpe", ("<|endoftext|>",)),
    "Qwen3": ScratchSpec("bpe", ("<|endoftext|>", "<|im_end|>"), needs_head_dim=True),
    "Phi3": ScratchSpec("sentencepiece", ("<unk>", "<s>", "<|endoftext|>")),
    "Gemma": ScratchSpec(
        "sentencepiece",
        # KerasHub's class demands the first three, its templates use the last two.
        ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
        needs_head_dim=True,
        key_value_heads=1,
    ),
}
_NEED_START = ("Gemma", "Gemma3", "Gemma4")


def _rows() -> dict[str, Family]:
    layouts = {p: parts for names, *parts in _LAYOUTS for p in names.split()}
    return {
        prefix if prefix.endswith("Encoder") else f"{prefix}Backbone": Family(
            prefix,
            tuple(layouts.get(prefix, ())),
            _REFUSED.get(prefix, ""),
            _FROM_NOTHING.get(prefix),
            prefix in _NEED_START,
        )
        for prefix in (*layouts, *_REFUSED)
    }


#: Class of the backbones -> their row.
FAMILIES: dict[str, Family] = _rows()
#: Name in a run's description -> the row, of those a run can begin from nothing with.
# (`Any`, because the type checker cannot know that these have all parts.)
HUB_FAMILIES: Mapping[str, Any] = types.MappingProxyType(
    {row.prefix.lower(): row for row in FAMILIES.values() if row.from_nothing}
)


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
    rows = [FAMILIES.get(cls.__name__) for cls in backbone.__mro__ if _from_hub(cls)]
    return any(row is not None and row.needs_start for row in rows)


def check_family(backbone: keras.Model) -> None:
    """Refuses a backbone of a family in the table that cannot be pruned."""
    if _class_of_hub(backbone) in FAMILIES:
        ffn_layouts(backbone)


def ffn_layouts(backbone: keras.Model) -> tuple[FFNLayout, ...]:
    """Where a backbone keeps its FFNs; of more than one layout, a block has some.

    Refuses one that is not in the table or cannot be pruned.
    """
    name = _class_of_hub(backbone)
    row = FAMILIES.get(name)
    if row is None:
        known = ", ".join(name for name, row in FAMILIES.items() if row.layouts)
        raise ArgumentError(
            f"{name} is not among the families whose FFNs are known: {known}. Add its "
            "row to hub/families.py; for a model of your own see PrunableGatedFFN."
        )
    if row.refused:
        raise ArgumentError(f"{name} cannot be pruned: {row.refused}.")
    first, *others = row.layouts
    for attribute, (value, reason) in first.requires.items():
        if getattr(backbone, attribute) != value:
            raise ArgumentError(
                f"This {name} cannot be pruned: {reason} "
                f"({attribute}={getattr(backbone, attribute)!r})."
            )
    if first.gate_if and not getattr(backbone, first.gate_if):
        first = dataclasses.replace(first, gate="")
    return (first, *others)


def _class_of_hub(backbone: keras.Model) -> str:
    # A class that a user derives from KerasHub's is of KerasHub's family.
    return next(c for c in type(backbone).__mro__ if _from_hub(c)).__name__


def _is_of_hub(layer: object, name: str) -> bool:
    # By name: to import keras_hub is to import TensorFlow.
    return any(_from_hub(c) and c.__name__ == name for c in type(layer).__mro__)


def _from_hub(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras_hub"


#: Backbones whose config sets the width of a head: the others have no stock model with
#: fewer heads of the same width.
HEADS = tuple(
    f"{family}Backbone"
    for family in "Mistral Qwen3 Qwen3Moe Gemma Gemma3 Gemma4 GptOss T5Gemma".split()
)
