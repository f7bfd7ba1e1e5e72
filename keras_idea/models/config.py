"""The shape of a decoder as one frozen record, and the paper's shapes by name."""

import dataclasses
import types

from keras_idea.errors import ArgumentError
from keras_idea.functional import ffn_parameters
from keras_idea.validation import check_choice, check_int, check_number


def check_heads(num_heads: int, num_key_value_heads: int | None) -> int:
    """The number of key/value heads (None: one a query head), if the heads group."""
    num_heads = check_int("num_heads", num_heads, minimum=1)
    if num_key_value_heads is None:
        return num_heads
    groups = check_int("num_key_value_heads", num_key_value_heads, minimum=1)
    if num_heads % groups:
        raise ArgumentError(
            "`num_key_value_heads` must divide `num_heads`, so that every key/value "
            "head serves the same number of query heads. Received: "
            f"num_key_value_heads={groups}, num_heads={num_heads}. Pass a divisor of "
            f"{num_heads}, or None for one key/value head per query head."
        )
    return groups


def check_head_dim(
    model_dim: int, num_heads: int, given: int | None = None, name: str = "model_dim"
) -> int:
    """The features of one head, if they can be rotated; messages call the first `name`.

    `given` counts where it is not None, else `model_dim // num_heads`.
    """
    if given is not None:
        if check_int("head_dim", given, minimum=1) % 2:
            raise ArgumentError(
                "`head_dim` must be even, because the rotary embedding turns pairs of "
                f"features. Received: head_dim={given}."
            )
        return given
    if model_dim % num_heads:
        raise ArgumentError(
            f"`{name}` must be a multiple of `num_heads`. Received: "
            f"{name}={model_dim}, num_heads={num_heads}. The nearest multiple "
            f"above is {-(-model_dim // num_heads) * num_heads}."
        )
    head_dim = model_dim // num_heads
    if head_dim % 2:
        raise ArgumentError(
            f"`{name} / num_heads` must be even, because the rotary embedding "
            f"turns pairs of features. Received: {name}={model_dim}, "
            f"num_heads={num_heads}, that is {head_dim} features a head. Pass a "
            f"`{name}` that is a multiple of {2 * num_heads}, or fewer heads."
        )
    return head_dim


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder-only language model.

    Args:
        vocabulary_size: int, distinct token ids.
        model_dim: int, features of the residual stream; the FFN's input_dim.
        num_layers: int, decoder blocks.
        num_heads: int, query heads; divides `attention_dim` into an even head size.
        hidden_dim: int, neurons of each gated FFN.
        sequence_length: int, tokens of a training sequence. The model itself
            takes any length; data and generation read this number.
        num_key_value_heads: int or None, key/value heads; divides `num_heads`.
            Defaults to None: as many as query heads.
        rope_max_wavelength: float, base of the rotary embedding's geometric
            series of wavelengths, in tokens / (2 pi). Defaults to 10000.
        tie_embeddings: bool, whether the logits use the token embedding's matrix.
            Defaults to False.
        rms_norm_epsilon: float, added to the mean square before the root.
            Defaults to 1e-5.
        attention_dim: int or None, features of all query heads together. Defaults to
            None: `model_dim`; where heads were pruned it is less.

    Raises:
        ValueError: if a number is out of range, or the heads do not divide.

    Example:
    >>> config = DecoderConfig(vocabulary_size=256, model_dim=64, num_layers=2,
    ...                        num_heads=4, hidden_dim=256, sequence_length=128)
    >>> config.head_dim
    16
    >>> byte_level = dataclasses.replace(PAPER_CONFIGS["300m"], vocabulary_size=256)
    """

    vocabulary_size: int
    model_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    sequence_length: int
    num_key_value_heads: int | None = None
    rope_max_wavelength: float = 10000.0
    tie_embeddings: bool = False
    rms_norm_epsilon: float = 1e-5
    attention_dim: int | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        for name in (
            "vocabulary_size",
            "model_dim",
            "num_layers",
            "num_heads",
            "hidden_dim",
            "sequence_length",
        ):
            check_int(name, getattr(self, name), minimum=1)
        check_heads(self.num_heads, self.num_key_value_heads)
        if self.attention_dim is None:
            check_head_dim(self.model_dim, self.num_heads)
        else:
            check_int("attention_dim", self.attention_dim, minimum=1)
            check_head_dim(self.attention_dim, self.num_heads, name="attention_dim")
        check_number("rope_max_wavelength", self.rope_max_wavelength, minimum=1.0)
        check_choice("tie_embeddings", self.tie_embeddings, (False, True))
        check_number("rms_norm_epsilon", self.rms_norm_epsilon)

    @property
    def head_dim(self) -> int:
        """int, features of one attention head."""
        return (self.attention_dim or self.model_dim) // self.num_heads

    @property
    def non_embedding_parameters(self) -> int:
        """int, parameters outside the token embedding and the logits' matrix.

        With d = model_dim, a = attention_dim, h = hidden_dim and k the fraction of
        key/value heads to query heads: `layers (2 d a (1 + k) + 3 d h + 2 d) + d`; the
        last terms are the scales of the norms.
        """
        d = self.model_dim
        kv_heads = check_heads(self.num_heads, self.num_key_value_heads)
        attention = 2 * d * (self.num_heads + kv_heads) * self.head_dim
        return (
            self.num_layers * (attention + ffn_parameters(d, self.hidden_dim) + 2 * d)
            + d
        )


def _paper_config(model_dim: int, num_heads: int, hidden_dim: int) -> DecoderConfig:
    # The paper names neither tokenizer nor vocabulary (its models are counted
    # without embeddings). 50304 = 393 * 128 holds the GPT-2 (50257) and GPT-NeoX
    # (50277) vocabularies, and a multiple of 128 keeps the logits' product fast.
    return DecoderConfig(
        vocabulary_size=50304,
        model_dim=model_dim,
        num_layers=24,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        sequence_length=4096,
    )


#: The paper's shapes. Each "enlarged" one is pruned to its target's hidden_dim:
#: "2.8b" to "1.3b", "300m-enlarged" to "300m".
PAPER_CONFIGS = types.MappingProxyType(
    {
        "300m": _paper_config(1024, 16, 3072),
        "300m-enlarged": _paper_config(1024, 16, 8192),
        "1.3b": _paper_config(2048, 32, 6528),
        "2.8b": _paper_config(2048, 32, 16384),
    }
)
