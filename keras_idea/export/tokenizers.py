"""Tokenizers compared, and a byte-level one written exactly for Hugging Face."""

import json

import numpy as np

# Indentation, digits, an apostrophe, other scripts: where tokenizers differ.
SAMPLES = (
    "the quick brown fox jumps",
    "def f(x):\n    if x > 1024:\n\n        return x + 10\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t",
)


def first_difference(encode, other):
    """Compares what two tokenizers make of a few texts.

    Args:
        encode: function of a str that returns token ids, the right ones; a KerasHub
            tokenizer is one.
        other: such a function, the one in question.

    Returns:
        str, where they differ, or "" if they do not.
    """
    for text in SAMPLES:
        expected, received = (_ids(f(text)) for f in (encode, other))
        if expected != received:
            return f"{text!r} becomes {received}, not {expected}."
    return ""


def _ids(ids):
    return np.asarray(ids).tolist()


def start_token(preprocessor):
    """The token that a model's tokenizer puts before every text.

    Args:
        preprocessor: a KerasHub `CausalLMPreprocessor`.

    Returns:
        str, or None if it puts none.
    """
    if not getattr(preprocessor, "add_start_token", False):
        return None
    return getattr(preprocessor.tokenizer, "start_token", None)


def mend_hf(tokenizer, path, start):
    """Makes a tokenizer that KerasHub has exported to Hugging Face its own again.

    KerasHub 0.32 does not cut text into words before it merges bytes (its pattern
    is taken for a literal string), but what it exports does; it adds the start
    token, which a Llama3's export does not; and it exports no word of a SentencePiece
    model that puts no space before a text.

    Args:
        tokenizer: a KerasHub tokenizer.
        path: path of the exported folder.
        start: str or None, the token that every text begins with.
    """
    settings: dict[str, str | bool] = {"clean_up_tokenization_spaces": False}
    if getattr(tokenizer, "merges", None) is None:
        settings["add_prefix_space"] = False
    else:
        _byte_level(tokenizer, start).save(str(path / "tokenizer.json"))
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        for name in ("vocab.json", "merges.txt"):
            (path / name).unlink(missing_ok=True)
    config = path / "tokenizer_config.json"
    written = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(written | settings, indent=2), encoding="utf-8")


def _byte_level(tokenizer, start):
    """A `tokenizers.Tokenizer` that is exactly a KerasHub `BytePairTokenizer`."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
    )

    # A file of merges may begin with a line that is no merge.
    merges = [tuple(m.split(" ")) for m in tokenizer.merges if "#version:" not in m]
    exact = Tokenizer(models.BPE(vocab=dict(tokenizer.vocabulary), merges=merges))
    # Sorted by id: a set has no order.
    special = sorted(tokenizer.unsplittable_tokens or (), key=tokenizer.token_to_id)
    exact.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    exact.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=tokenizer.add_prefix_space, use_regex=False
    )
    exact.decoder = decoders.ByteLevel()
    if start is not None:
        exact.post_processor = processors.TemplateProcessing(
            single=f"{start} $A",
            pair=f"{start} $A {start} $B",
            special_tokens=[(start, tokenizer.token_to_id(start))],
        )
    return exact
