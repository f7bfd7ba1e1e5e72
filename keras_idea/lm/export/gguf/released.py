"""Which byte-level tokenizers are released ones, whose way of cutting text is known."""

import hashlib
from typing import Any

#: By the SHA-256 of their merges, one a line -> llama.cpp's name. Taken from the
#: vocabularies that lie in its source package.
RELEASED = {
    "04e3597d7996f292ca9b8b7285ca4d58a6ae171ac47d73fc7140ceb0c7a6bbc0": "gpt-2",
    "0cd100e0ab7dbd83c3b668a7cfb2aed1f63f2aec66dae6ec4b63de2c552bb82d": "llama-bpe",
    "bbeef245f0b03a9613753068e5799c2496290005594c68f09eed68feedbe6d1f": "qwen2",
}
AS_RELEASED = (
    "Its tokenizer is a released one: there it cuts text into words as that does "
    "({name!r}), where KerasHub 0.32 cuts nothing; some token ids differ from the "
    "model's."
)


def merges_of(tokenizer: Any) -> list[str]:
    """The merges, "a b", of a KerasHub `BytePairTokenizer`."""
    # A file of merges may begin with a line that is no merge.
    return [str(merge) for merge in tokenizer.merges if "#version:" not in str(merge)]


def released_name(tokenizer: Any) -> str | None:
    """llama.cpp's name of a KerasHub tokenizer, if it is a released one."""
    if getattr(tokenizer, "merges", None) is None:
        return None
    merges = "\n".join(merges_of(tokenizer))
    return RELEASED.get(hashlib.sha256(merges.encode()).hexdigest())
