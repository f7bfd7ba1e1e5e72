"""The KerasHub families whose gated FFNs can be pruned: one row of data each."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Family:
    """Where the backbones of a family keep their gated FFNs.

    Attributes:
        up: str, attribute of the layer whose output is activated.
        gate: str, attribute of the linear layer beside it.
        down: str, attribute of the layer back to the model's width.
        inside: str, attribute of a block that holds the three; "": the block does.
        stacks: dict, attribute of the backbone that lists blocks -> argument of
            its constructor that sets their width.
        per_neuron: int, how much of that argument a neuron takes.
        calls_down: bool, whether blocks call the down layer: then its input, the
            hidden activations, can be measured and masked.
        requires: dict, attribute of the backbone -> (the value it must have, what
            it means if it has another).
    """

    up: str
    gate: str
    down: str
    inside: str = ""
    stacks: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"transformer_layers": "intermediate_dim"}
    )
    per_neuron: int = 1
    calls_down: bool = True
    requires: Mapping[str, tuple[object, str]] = dataclasses.field(default_factory=dict)


_LLAMA = Family(
    up="_feedforward_gate_dense",
    gate="_feedforward_intermediate_dense",
    down="_feedforward_output_dense",
)
_GEMMA3 = Family(up="gating_ffw", gate="gating_ffw_2", down="ffw_linear")
_PROJ = Family(up="gate_proj", gate="up_proj", down="down_proj", inside="mlp")

FAMILIES = {
    "LlamaBackbone": _LLAMA,
    "Llama3Backbone": _LLAMA,
    "MistralBackbone": _LLAMA,
    "QwenBackbone": _LLAMA,
    "Qwen3Backbone": _LLAMA,
    "Qwen3_5Backbone": _LLAMA,
    "Phi3Backbone": Family(
        up="feedforward_gate_dense",
        gate="feedforward_intermediate_dense",
        down="feedforward_output_dense",
    ),
    # Gemma and Gemma2 are one class.
    "GemmaBackbone": dataclasses.replace(_GEMMA3, per_neuron=2),
    "Gemma3Backbone": _GEMMA3,
    "Gemma4Backbone": dataclasses.replace(
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
    "SmolLM3Backbone": _PROJ,
    "T5Backbone": Family(
        up="input_projector",
        gate="gate_projector",
        down="output_projector",
        stacks={
            "encoder_transformer_layers": "intermediate_dim",
            "decoder_transformer_layers": "intermediate_dim",
        },
        requires={"use_gated_activation": (True, "its FFNs are not gated")},
    ),
    "T5GemmaBackbone": dataclasses.replace(
        _PROJ,
        stacks={
            "encoder_layers": "encoder_intermediate_dim",
            "decoder_layers": "decoder_intermediate_dim",
        },
    ),
    "EdRecBackbone": Family(
        up="up_proj",
        gate="gate_proj",
        down="down_proj",
        inside="mlp",
        stacks={
            "encoder_layers": "intermediate_dim",
            "decoder_layers": "intermediate_dim",
        },
    ),
}

_EXPERTS = (
    "its experts are raw variables with no layer to tap, and each expert sees only "
    "the tokens routed to it"
)
REFUSED = {
    "MixtralBackbone": _EXPERTS,
    "QwenMoeBackbone": _EXPERTS,
    "Qwen3MoeBackbone": _EXPERTS,
    "Qwen3_5MoeBackbone": _EXPERTS,
    "GptOssBackbone": _EXPERTS,
    "Gemma3nBackbone": (
        "its activation sparsity takes statistics over all neurons, so that a "
        "narrower model computes something else"
    ),
}


def is_backbone(layer):
    """bool, whether `layer` is a KerasHub backbone."""
    return _hub_class(layer, "Backbone") is not None


def is_task(layer):
    """bool, whether `layer` is a KerasHub task, such as a `CausalLM`."""
    return _hub_class(layer, "Task") is not None


def family_of(backbone):
    """The row of the table for a backbone.

    Args:
        backbone: a KerasHub backbone.

    Returns:
        `Family`.

    Raises:
        ValueError: if it is not in the table or cannot be pruned; why.
    """
    # A class that a user derives from KerasHub's is of KerasHub's family.
    classes = [c for c in type(backbone).__mro__ if _from_hub(c)]
    name = classes[0].__name__
    if name in REFUSED:
        raise ValueError(f"{name} cannot be pruned: {REFUSED[name]}.")
    if name not in FAMILIES:
        raise ValueError(
            f"{name} is not among the families whose gated FFNs are known: "
            f"{', '.join(FAMILIES)}. If its FFNs are gated, add a row to "
            "keras_idea.hub.families.FAMILIES; in models of your own use "
            "keras_idea.PrunableGatedFFN."
        )
    family = FAMILIES[name]
    for attribute, (value, reason) in family.requires.items():
        if getattr(backbone, attribute) != value:
            raise ValueError(
                f"This {name} cannot be pruned: {reason} "
                f"({attribute}={getattr(backbone, attribute)!r})."
            )
    return family


def _hub_class(layer, name):
    # By name: to import keras_hub is to import TensorFlow.
    classes = (c for c in type(layer).__mro__ if _from_hub(c) and c.__name__ == name)
    return next(classes, None)


def _from_hub(cls):
    return cls.__module__.split(".")[0] == "keras_hub"
