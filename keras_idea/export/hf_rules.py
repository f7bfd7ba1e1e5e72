"""What KerasHub 0.32 exports to Hugging Face rightly: one row of data a family."""

import dataclasses
from collections.abc import Callable

from keras_idea.errors import ExportRefused


@dataclasses.dataclass(frozen=True)
class Rule:
    """Something that must hold of a backbone, or its export would be wrong.

    Args:
        holds: function of a backbone that returns a bool.
        reason: str, what KerasHub does otherwise, and what to do.
    """

    holds: Callable
    reason: str


@dataclasses.dataclass(frozen=True)
class Family:
    """A family that KerasHub has an export for.

    Args:
        rules: tuple of `Rule`.
        export_as: str or None, prefix of the classes by which it is exported, those
            of an equal architecture. None: by its own.
        tokenizer_as: str or None, tokenizer class that is given its tokenizer's
            model (`proto`). None: its own.
    """

    rules: tuple[Rule, ...] = ()
    export_as: str | None = None
    tokenizer_as: str | None = None


def _is(attribute, value, reason):
    """A `Rule`: an attribute has its usual value."""
    return Rule(
        lambda backbone: getattr(backbone, attribute, value) == value,
        f"{reason}. Train with {attribute}={value!r}.",
    )


_GEMMA2 = "KerasHub exports Gemma 2 as Gemma 1, which computes something else"
_ROPE = _is(
    "rope_scaling_factor", 1.0, "KerasHub leaves the scaling of the positions out"
)
# Measured with keras_hub 0.32.0 and transformers 5.23, each on a tiny model.
FAMILIES = {
    "LlamaBackbone": Family(export_as="Llama3", tokenizer_as="MistralTokenizer"),
    "Llama3Backbone": Family(),
    "MistralBackbone": Family((_ROPE,)),
    "QwenBackbone": Family((_ROPE,)),
    "Qwen3_5Backbone": Family(),
    "GemmaBackbone": Family(
        (
            _is("use_post_ffw_norm", False, _GEMMA2),
            _is("use_post_attention_norm", False, _GEMMA2),
            _is("attention_logit_soft_cap", None, _GEMMA2),
            _is("final_logit_soft_cap", None, _GEMMA2),
            _is("use_sliding_window_attention", False, _GEMMA2),
            _is("num_key_value_heads", 1, "KerasHub exports the first of them only"),
            Rule(
                lambda b: b.num_query_heads * b.head_dim == b.hidden_dim,
                "KerasHub transposes the queries wrongly unless num_query_heads x "
                "head_dim is hidden_dim. Train with such a head_dim.",
            ),
            _is("layer_norm_epsilon", 1e-6, "KerasHub leaves it out"),
        )
    ),
    "Gemma3Backbone": Family(),
    "Gemma4Backbone": Family(),
    "GPT2Backbone": Family(),
}
_HINT = (
    "Train a Llama3, Mistral, Qwen or Gemma for that (its preset can be exported all "
    "the same: --preset)."
)


def family_of(backbone):
    """The row of a backbone, or why its export would be wrong.

    Args:
        backbone: a stock KerasHub backbone.

    Returns:
        `Family`.

    Raises:
        ExportRefused: if KerasHub has no export for it, or a wrong one.
    """
    name = type(backbone).__name__
    if name not in FAMILIES:
        raise ExportRefused(
            f"KerasHub has no export to Hugging Face for {name}; it has one for "
            f"{', '.join(FAMILIES)}. {_HINT}"
        )
    for rule in FAMILIES[name].rules:
        if not rule.holds(backbone):
            raise ExportRefused(
                f"This {name} would be exported to Hugging Face wrongly: {rule.reason}"
            )
    return FAMILIES[name]
