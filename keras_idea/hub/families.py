"""The KerasHub families that this package knows: one row of data each."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, TypeAlias

import keras

from keras_idea.errors import ArgumentError
from keras_idea.hub.family import Family, FFNLayout, ScratchSpec

# Without a gate.
_BLOCK = FFNLayout(
    up="_feedforward_intermediate_dense", down="_feedforward_output_dense"
)
_PUBLIC = FFNLayout(
    up="feedforward_intermediate_dense", down="feedforward_output_dense"
)
_NUMBERED = FFNLayout(up="dense_1", down="dense_2")
_FC = FFNLayout(up="fc1", down="fc2", inside="mlp")
_TWO_STACKS = {
    "encoder_transformer_layers": "intermediate_dim",
    "decoder_transformer_layers": "intermediate_dim",
}
_TEXT_ENCODER = {"encoder_layers": "intermediate_dim"}

_UNGATED_ROWS = (
    Family("GPT2", ffns=_BLOCK),
    *(
        Family(prefix, ffns=_BLOCK)
        for prefix in (
            "OPT GPTNeoX Bert Roberta XLMRoberta DistilBert Electra DebertaV3".split()
        )
    ),
    *(
        Family(prefix, ffns=dataclasses.replace(_BLOCK, stacks=_TWO_STACKS))
        for prefix in ("Bart", "Whisper")
    ),
    *(Family(prefix, ffns=_PUBLIC) for prefix in ("ESM", "RoformerV2")),
    Family(
        "Bloom", ffns=FFNLayout(up="_mlp_intermediate_dense", down="_mlp_output_dense")
    ),
    Family("Falcon", ffns=FFNLayout(up="dense_h_to_4h", down="dense_4h_to_h")),
    Family("FNet", ffns=FFNLayout(up="_intermediate_dense", down="_output_dense")),
    Family(
        "ViT",
        ffns=dataclasses.replace(
            _NUMBERED, inside="mlp", stacks={"vit_encoder.encoder_layers": "mlp_dim"}
        ),
    ),
    Family(
        "DeiT",
        ffns=FFNLayout(
            up="mlp.dense",
            down="output_layer.dense",
            stacks={"deit_encoder.encoder_layers": "intermediate_dim"},
        ),
    ),
    Family(
        "DINOV2",
        ffns=dataclasses.replace(
            _FC,
            stacks={"encoder.layers": "intermediate_dim"},
            requires={
                "use_swiglu_ffn": (
                    False,
                    "its gate and its up matrix are one, and its config holds another "
                    "number than their width",
                )
            },
        ),
    ),
    Family("SigLIPTextEncoder", ffns=dataclasses.replace(_FC, stacks=_TEXT_ENCODER)),
    *(
        Family(prefix, ffns=dataclasses.replace(_NUMBERED, stacks=_TEXT_ENCODER))
        for prefix in ("CLIPTextEncoder", "MetaCLIP2TextEncoder")
    ),
)

# Mixtures of experts.
# Both matrices of an expert that tokens come to lie in one variable.
_FUSED = FFNLayout(
    up="_expert_feedforward_gate_dense",
    down="_expert_feedforward_output_dense",
    inside="mlp.expert_bank",
    stacks={"transformer_layers": "moe_intermediate_dim"},
    experts=True,
    packing="halves",
)
# What all tokens go through: a block without experts, or an expert beside them.
_DENSE = FFNLayout(
    up="_feedforward_gate_dense",
    gate="_feedforward_intermediate_dense",
    down="_feedforward_output_dense",
    inside="mlp",
)
_SHARED = dataclasses.replace(
    _DENSE,
    inside="mlp.shared_expert_dense",
    stacks={"transformer_layers": "shared_expert_intermediate_dim"},
)
_SHARED_3_5 = dataclasses.replace(
    _DENSE,
    inside="mlp.shared_expert",
    stacks={"transformer_layers": "shared_expert_intermediate_size"},
)

_MIXTURE_ROWS = (
    Family(
        "Mixtral",
        ffns=FFNLayout(
            up="_expert_feedforward_gate_dense",
            gate="_expert_feedforward_intermediate_dense",
            down="_expert_feedforward_output_dense",
            inside="_sparse_moe_block.expert_bank",
            experts=True,
        ),
    ),
    Family("QwenMoe", ffns=_FUSED, others=(_SHARED, _DENSE)),
    Family("Qwen3Moe", ffns=_FUSED, others=(_DENSE,)),
    Family(
        "GptOss",
        ffns=FFNLayout(
            up="gate_up_proj",
            down="down_proj",
            inside="sparse_moe_block.experts",
            experts=True,
            packing="pairs",
        ),
    ),
    Family("Qwen3_5Moe", ffns=_FUSED, others=(_SHARED_3_5,)),
)

_LLAMA = FFNLayout(
    up="_feedforward_gate_dense",
    gate="_feedforward_intermediate_dense",
    down="_feedforward_output_dense",
)
_GEMMA3 = FFNLayout(up="gating_ffw", gate="gating_ffw_2", down="ffw_linear")
_PROJ = FFNLayout(up="gate_proj", gate="up_proj", down="down_proj", inside="mlp")
_LLAMA_TOKENS = ("<unk>", "<s>", "</s>")

_ROWS = (
    Family(
        "Llama",
        ffns=_LLAMA,
        from_nothing=ScratchSpec("sentencepiece", _LLAMA_TOKENS),
    ),
    Family(
        "Llama3",
        ffns=_LLAMA,
        from_nothing=ScratchSpec(
            "bpe",
            (
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
            ),
        ),
    ),
    Family(
        "Mistral",
        ffns=_LLAMA,
        from_nothing=ScratchSpec("sentencepiece", _LLAMA_TOKENS),
    ),
    Family(
        "Qwen",
        ffns=_LLAMA,
        from_nothing=ScratchSpec("bpe", ("<|endoftext|>",)),
    ),
    Family(
        "Qwen3",
        ffns=_LLAMA,
        from_nothing=ScratchSpec(
            "bpe", ("<|endoftext|>", "<|im_end|>"), needs_head_dim=True
        ),
    ),
    Family("Qwen3_5", ffns=_LLAMA),
    Family(
        "Phi3",
        ffns=FFNLayout(
            up="feedforward_gate_dense",
            gate="feedforward_intermediate_dense",
            down="feedforward_output_dense",
        ),
        from_nothing=ScratchSpec("sentencepiece", ("<unk>", "<s>", "<|endoftext|>")),
    ),
    # Gemma and Gemma2 are one class.
    Family(
        "Gemma",
        ffns=dataclasses.replace(_GEMMA3, per_neuron=2),
        from_nothing=ScratchSpec(
            "sentencepiece",
            # KerasHub's class demands the first three, its export to Hugging Face
            # names the last two.
            ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
            needs_head_dim=True,
            # Of more, KerasHub's export to Hugging Face writes the first only.
            key_value_heads=1,
        ),
        needs_start=True,
    ),
    Family(
        "Gemma3",
        ffns=_GEMMA3,
        needs_start=True,
    ),
    Family(
        "Gemma4",
        ffns=dataclasses.replace(
            _GEMMA3,
            calls_down=False,  # it multiplies by `layer.kernel` itself
            requires={
                "enable_moe_block": (False, "it has a mixture of experts"),
                "use_double_wide_mlp": (
                    False,
                    "some of its FFNs are twice as wide as the others, and its config "
                    "holds one width",
                ),
            },
        ),
        needs_start=True,
    ),
    Family("SmolLM3", ffns=_PROJ),
    Family(
        "T5",
        ffns=FFNLayout(
            up="input_projector",
            gate="gate_projector",
            down="output_projector",
            stacks=_TWO_STACKS,
            gate_if="use_gated_activation",
        ),
    ),
    Family(
        "T5Gemma",
        ffns=dataclasses.replace(
            _PROJ,
            stacks={
                "encoder_layers": "encoder_intermediate_dim",
                "decoder_layers": "decoder_intermediate_dim",
            },
        ),
    ),
    Family(
        "EdRec",
        ffns=dataclasses.replace(
            _PROJ,
            up=_PROJ.gate,
            gate=_PROJ.up,
            stacks={
                "encoder_layers": "intermediate_dim",
                "decoder_layers": "intermediate_dim",
            },
        ),
    ),
    Family(
        "Gemma3n",
        refused="its activation sparsity takes statistics over all neurons, so that a "
        "narrower model computes something else",
    ),
)
#: Class of the backbones -> their row.
FAMILIES: dict[str, Family] = {
    row.backbone: row for row in (*_ROWS, *_UNGATED_ROWS, *_MIXTURE_ROWS)
}
#: Name in a run's description -> the row, of those a run can begin from nothing with.
# (`Any`, because the type checker cannot know that these have all parts.)
HUB_FAMILIES: Mapping[str, Any] = types.MappingProxyType(
    {row.prefix.lower(): row for row in _ROWS if row.from_nothing}
)
#: Prefixes of the other families of causal language models that a run can prune, which
#: begin with a trained model.
PRESET_FAMILIES = tuple(
    "Bloom Falcon GPT2 GPTNeoX Gemma3 Gemma4 OPT Qwen3_5 SmolLM3".split()
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
    if row is not None and row.refused:
        raise ArgumentError(f"{name} cannot be pruned: {row.refused}.")
    if row is None or row.ffns is None:
        known = ", ".join(name for name, row in FAMILIES.items() if row.ffns)
        raise ArgumentError(
            f"{name} is not among the families whose FFNs are known: {known}. Add its "
            "row to FAMILIES; for a model of your own see PrunableGatedFFN."
        )
    for attribute, (value, reason) in row.ffns.requires.items():
        if getattr(backbone, attribute) != value:
            raise ArgumentError(
                f"This {name} cannot be pruned: {reason} "
                f"({attribute}={getattr(backbone, attribute)!r})."
            )
    layout = row.ffns
    if layout.gate_if and not getattr(backbone, layout.gate_if):
        layout = dataclasses.replace(layout, gate="")
    return (layout, *row.others)


def _class_of_hub(backbone: keras.Model) -> str:
    # A class that a user derives from KerasHub's is of KerasHub's family.
    return next(c for c in type(backbone).__mro__ if _from_hub(c)).__name__


def _is_of_hub(layer: object, name: str) -> bool:
    # By name: to import keras_hub is to import TensorFlow.
    return any(_from_hub(c) and c.__name__ == name for c in type(layer).__mro__)


def _from_hub(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras_hub"


# Those of families that say how wide a head is: where it follows from the number of
# heads, no stock model has fewer of the same width.
#: Arguments of a backbone: query heads, key/value heads, features of a head.
Arguments: TypeAlias = tuple[str, str, str]

_USUAL: Arguments = ("num_query_heads", "num_key_value_heads", "head_dim")

HEAD_ARGUMENTS: Mapping[str, Arguments] = {
    f"{family}Backbone": _USUAL
    for family in "Mistral Qwen3 Qwen3Moe Gemma Gemma3 Gemma4 GptOss".split()
}

#: Of backbones with several lists of blocks: by the attribute that is the list.
STACKED_HEAD_ARGUMENTS: Mapping[str, Mapping[str, Arguments]] = {
    "T5GemmaBackbone": {
        f"{side}_layers": (
            f"{side}_num_attention_heads",
            f"{side}_num_key_value_heads",
            f"{side}_head_dim",
        )
        for side in ("encoder", "decoder")
    }
}
