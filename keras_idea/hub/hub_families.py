"""The KerasHub families a run can begin from nothing with: one row each."""

import dataclasses
import types

from keras_idea.errors import ConfigError
from keras_idea.hub.families import FAMILIES as FFN_FAMILIES

#: The tokens of every vocabulary besides the special ones: all text has an id.
NUM_BYTES = 256


@dataclasses.dataclass(frozen=True)
class HubFamily:
    """What must be known to make a family's model and its tokenizer.

    Args:
        prefix: str, of its KerasHub classes: `<prefix>Backbone`, and so on.
        tokenizer: "bpe" or "sentencepiece", what its tokenizer class reads.
        special_tokens: tuple of str, those its tokenizer class demands; of
            SentencePiece in the order of their ids, which begin at 0.
        needs_head_dim: bool, whether its backbone must be told the size of a head.
        key_value_heads: int or None, those it has where a run does not say; None: as
            many as heads.
    """

    prefix: str
    tokenizer: str
    special_tokens: tuple[str, ...]
    needs_head_dim: bool = False
    key_value_heads: int | None = None

    @property
    def per_neuron(self):
        """int, how much of the backbone's `intermediate_dim` a neuron takes."""
        return FFN_FAMILIES[f"{self.prefix}Backbone"].per_neuron

    @property
    def smallest_vocabulary(self):
        """int, tokens of the byte-level tokenizer."""
        # SentencePiece writes a space as a piece of its own.
        space = self.tokenizer == "sentencepiece"
        return NUM_BYTES + space + len(self.special_tokens)


HUB_FAMILIES = types.MappingProxyType(
    {
        "llama": HubFamily("Llama", "sentencepiece", ("<unk>", "<s>", "</s>")),
        "llama3": HubFamily(
            "Llama3",
            "bpe",
            (
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
            ),
        ),
        "mistral": HubFamily("Mistral", "sentencepiece", ("<unk>", "<s>", "</s>")),
        "qwen": HubFamily("Qwen", "bpe", ("<|endoftext|>",)),
        "qwen3": HubFamily(
            "Qwen3", "bpe", ("<|endoftext|>", "<|im_end|>"), needs_head_dim=True
        ),
        "phi3": HubFamily("Phi3", "sentencepiece", ("<unk>", "<s>", "<|endoftext|>")),
        "gemma": HubFamily(
            "Gemma",
            "sentencepiece",
            # KerasHub's class demands the first three, its export to Hugging Face
            # names the last two.
            (
                "<pad>",
                "<eos>",
                "<bos>",
                "<unk>",
                "<start_of_turn>",
                "<end_of_turn>",
            ),
            needs_head_dim=True,
            # Of more, KerasHub's export to Hugging Face writes the first only.
            key_value_heads=1,
        ),
    }
)
TOKENIZERS = ("bytes", "bpe", "sentencepiece")


def check_tokenizer(family, kind, vocabulary_size=None, name="kind"):
    """Refuses a tokenizer that a family's class cannot read.

    Args:
        family: str, a key of `HUB_FAMILIES`.
        kind: str, one of `TOKENIZERS`.
        vocabulary_size: int or None, tokens in all.
        name: str, how the argument `kind` is called in the message.

    Raises:
        ConfigError: if the two do not fit, or the vocabulary is too small or
            fixed; which would do.
    """
    row = HUB_FAMILIES[family]
    if kind not in ("bytes", row.tokenizer):
        raise ConfigError(
            f"`{name}` must be 'bytes' or {row.tokenizer!r} for {family!r}: KerasHub's "
            f"{row.prefix}Tokenizer reads no other. Received: {kind!r}."
        )
    if vocabulary_size is None:
        return
    if kind == "bytes":
        raise ConfigError(
            "`vocabulary_size` is for a trained tokenizer; the byte-level one of "
            f"{family!r} has {row.smallest_vocabulary} tokens. Received: "
            f"vocabulary_size={vocabulary_size}. Mend: leave it out, or ask for "
            f"{row.tokenizer!r}."
        )
    if vocabulary_size <= row.smallest_vocabulary:
        raise ConfigError(
            f"`vocabulary_size` must be above {row.smallest_vocabulary} for "
            f"{family!r}: so many are the bytes and the special tokens. Received: "
            f"vocabulary_size={vocabulary_size}. Mend: more, or the byte-level "
            "tokenizer."
        )
