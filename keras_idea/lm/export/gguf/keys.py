"""What a GGUF file says of a model besides its weights: llama.cpp's keys."""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_idea.keras_private.attention import query_heads
from keras_idea.lm.export.gguf.layouts import Tensor, as_it_is

#: Value of a key of the file's metadata.
Value = int | float | str | bool | list[bool]


def common_keys(b: Any, context: int) -> dict[str, Value]:
    """The keys that every architecture has; its name is put before them."""
    heads = query_heads(b)
    size = getattr(b, "head_dim", None) or b.hidden_dim // heads
    doubled = type(b).__name__ == "GemmaBackbone"
    return {
        "vocab_size": b.vocabulary_size,
        "context_length": context,
        "embedding_length": b.hidden_dim,
        "block_count": b.num_layers,
        "feed_forward_length": b.intermediate_dim // (2 if doubled else 1),
        "attention.head_count": heads,
        "attention.head_count_kv": getattr(b, "num_key_value_heads", heads),
        "attention.key_length": size,
        "attention.value_length": size,
        "rope.dimension_count": size,
    }


def position_factors(backbone: Any) -> list[Tensor]:
    """By what Llama 3.1 and later divide each frequency of their positions.

    One `Tensor`, or none.
    """
    low = getattr(backbone, "rope_low_freq_factor", None)
    if low is None:
        return []
    high = backbone.rope_high_freq_factor
    factor = backbone.rope_frequency_adjustment_factor
    size = backbone.hidden_dim // backbone.num_query_heads
    steps = np.arange(0, size, 2, dtype="float64") / size
    turns = backbone.rope_pretraining_sequence_length / (
        2 * math.pi * backbone.rope_max_wavelength**steps
    )
    # Slow ones are divided, quick ones are not, those between in part.
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    factors = (1 / ((1 - share) / factor + share)).astype("float32")
    return [Tensor("rope_freqs.weight", ((factors, as_it_is),))]


def rms(b: Any) -> dict[str, Value]:
    """Keys of a backbone with RMS norms."""
    return {"attention.layer_norm_rms_epsilon": float(b.layer_norm_epsilon)}


def rotary(b: Any) -> dict[str, Value]:
    """Keys of a backbone with RMS norms and rotary positions."""
    return {
        **rms(b),
        "rope.freq_base": float(b.rope_max_wavelength),
        **_linear(getattr(b, "rope_scaling_factor", 1.0)),
    }


def gpt2(b: Any) -> dict[str, Value]:
    """Keys of GPT-2, whose epsilon KerasHub does not let anybody choose."""
    return {"attention.layer_norm_epsilon": 1e-5}


def layer_norm(b: Any) -> dict[str, Value]:
    """Keys of a backbone with layer norms."""
    return {"attention.layer_norm_epsilon": float(b.layer_norm_epsilon)}


def gpt_neox(b: Any) -> dict[str, Value]:
    """Keys of GPT-NeoX, which rotates a part of each head."""
    size = b.hidden_dim // b.num_heads
    return {
        **layer_norm(b),
        "use_parallel_residual": True,
        "rope.dimension_count": int(size * b.rotary_percentage),
        "rope.freq_base": float(b.rotary_max_wavelength),
    }


def smollm3(b: Any) -> dict[str, Value]:
    """Keys of SmolLM3."""
    return {**rms(b), "rope.freq_base": float(b.rope_theta)}


def gemma2(b: Any) -> dict[str, Value]:
    """Keys of Gemma 2."""
    return {
        **rms(b),
        "attn_logit_softcapping": float(b.attention_logit_soft_cap),
        "final_logit_softcapping": float(b.final_logit_soft_cap),
        "attention.sliding_window": b.sliding_window_size,
    }


def gemma3(b: Any) -> dict[str, Value]:
    """Keys of Gemma 3, five of six blocks of which may have a sliding window."""
    keys = {**rms(b), "rope.freq_base": 1e6, **_linear(b.global_rope_scaling_factor)}
    if b.use_sliding_window_attention:
        keys["rope.freq_base_swa"] = 1e4
        keys["attention.sliding_window"] = b.sliding_window_size
    if b.final_logit_soft_cap:
        keys["final_logit_softcapping"] = float(b.final_logit_soft_cap)
    return keys


def _linear(factor: float) -> dict[str, Value]:
    """Keys of positions that are divided by a factor."""
    if factor == 1.0:
        return {}
    return {"rope.scaling.type": "linear", "rope.scaling.factor": float(factor)}


# KerasHub's own default, for a model whose length nothing bounds.
_DEFAULT = 1024
_POSITIONS = "max_sequence_length", "max_position_embeddings"
_OTHER = "`length` (--length) sets another one"


@dataclasses.dataclass(frozen=True)
class Context:
    """The context, in tokens, that a GGUF file allows, and what bounds it, in words."""

    length: int
    why: str

    def __str__(self) -> str:
        """A line for the user."""
        return f"Its context is {self.length} tokens: {self.why}."


def context_of(lm: Any, arch: str, window: str, length: int | None = None) -> Context:
    """The context of a `CausalLM`: what is asked for, at most what the model allows.

    Without `length` all that the model allows; if its positions do not bound it, its
    preprocessor's length. `arch` and `window` are as of `GGUFFamily`.
    """
    b = lm.backbone
    bounds = [
        Context(getattr(b, name), f"`{name}` of the model")
        for name in _POSITIONS
        if getattr(b, name, None)
    ]
    if length is not None:
        asked = Context(length, "the length asked for, or that of the run")
    elif not bounds:
        usual = getattr(lm.preprocessor, "sequence_length", None)
        why = "the sequence length of its preprocessor" if usual else "the default"
        asked = Context(usual or _DEFAULT, f"{why}. {_OTHER}")
    else:
        asked = bounds[0]
    if window and getattr(b, window, None):
        why = (
            f"the sliding window of the model. llama.cpp's {arch!r} has no window, and "
            "within so many tokens a window cuts nothing off"
        )
        bounds.append(Context(getattr(b, window), why))
    # The first of equal ones: no `length` can go beyond what the model allows.
    return min([*bounds, asked], key=lambda bound: bound.length)
