"""The tokenizer of an export to Hugging Face, made exactly the model's own."""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_idea.hub.hf.quiet import quiet
from keras_idea.hub.hf.tokenizer import OWN_FILE, cuts_as_released
from keras_idea.hub.inputs import start_token
from keras_idea.keras_private.hub_tokenizers import python_tokenizer
from keras_idea.lm.export.compare import first_difference
from keras_idea.lm.export.gguf.released import (
    AS_RELEASED,
    merges_of,
    released_name,
)

# Where a tokenizer goes that must not lie beside the model.
APART = "tokenizer"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
_TOKENIZER_APART = (
    f"Its tokenizer lies in the folder {APART!r} in it, because transformers would "
    "make another one of it beside the model: AutoTokenizer.from_pretrained("
    f"'.../{APART}')."
)
_NO_TOKENIZER = (
    "Warning: there is no tokenizer in it, because KerasHub's export of this one "
    "encodes otherwise than its own: {difference} Use the preset's."
)
# SentencePiece's.
_SPACE = "▁"
_SPECIAL = (
    "In a text its tokenizer reads {tokens} as special tokens; KerasHub and a GGUF "
    "file spell them out."
)
_SPLIT = (
    "`tokenizer(text, split_special_tokens=True)` gives the model's own ids; chat "
    "templates need the default."
)


def settle_tokenizer(
    preprocessor: keras.layers.Layer | None, path: pathlib.Path
) -> tuple[str, ...]:
    """Makes the tokenizer of an exported folder the model's, or takes it out.

    A released byte-level one is left as it is: llama.cpp's converter knows it by what
    it makes of a text.

    Returns:
        tuple of str, what the user should know of it.
    """
    if preprocessor is None:
        return ()
    tokenizer = preprocessor.tokenizer
    (path / OWN_FILE).unlink(missing_ok=True)
    byte_level = getattr(tokenizer, "merges", None) is not None
    if not byte_level:
        # In any case: versions of transformers differ in what they do without.
        _add_settings(path, {"add_prefix_space": _puts_a_space(tokenizer)})
    difference = _tokenizer_difference(preprocessor, path)
    if difference:
        released = released_name(tokenizer)
        if released and not cuts_as_released(tokenizer):
            return (AS_RELEASED.format(name=released),)
        exact = (
            _byte_level(tokenizer) if byte_level else _sentencepiece(tokenizer, path)
        )
        _write(exact, tokenizer, path, start_token(preprocessor))
        difference = _tokenizer_difference(preprocessor, path)
    if not difference:
        return _read_in_a_text(preprocessor, path)
    # Beside a config.json transformers may take the family's class whatever the
    # tokenizer's own files say: Qwen's cuts the text as it likes.
    apart = path / APART
    apart.mkdir()
    for name in TOKENIZER_FILES:
        if (path / name).exists():
            (path / name).rename(apart / name)
    if not _tokenizer_difference(preprocessor, apart):
        return (_TOKENIZER_APART, *_read_in_a_text(preprocessor, apart))
    shutil.rmtree(apart)
    return (_NO_TOKENIZER.format(difference=difference),)


def _tokenizer_difference(preprocessor: keras.layers.Layer, path: pathlib.Path) -> str:
    try:
        loaded = _loaded(path)
    except Exception as error:
        return f"transformers cannot load it: {error}."
    return first_difference(_with_start(preprocessor), loaded.encode)


def _loaded(path: pathlib.Path) -> Any:
    """The tokenizer that transformers loads from a folder."""
    import transformers

    with quiet(transformers):
        return transformers.AutoTokenizer.from_pretrained(path)


def _with_start(preprocessor: Any) -> Callable[[str], list[int]]:
    """The ids that the model is given for a text."""
    tokenizer = preprocessor.tokenizer
    start = [tokenizer.start_token_id] if start_token(preprocessor) else []
    return lambda text: [*start, *np.asarray(tokenizer(text)).tolist()]


def _read_in_a_text(
    preprocessor: keras.layers.Layer, path: pathlib.Path
) -> tuple[str, ...]:
    """A note of special tokens that transformers reads in a text, and KerasHub not.

    To write `split_special_tokens` into the folder would give KerasHub's ids, and break
    chat templates, which write the start token into the text.
    """
    loaded, encode = _loaded(path), _with_start(preprocessor)

    def read(**options: bool) -> list[str]:
        return [
            token
            for token in loaded.get_added_vocab()
            if loaded.encode(f"a {token}b", **options) != encode(f"a {token}b")
        ]

    tokens = read()
    if not tokens:
        return ()
    note = _SPECIAL.format(tokens=", ".join(tokens))
    return (note if read(split_special_tokens=True) else f"{note} {_SPLIT}",)


def _puts_a_space(tokenizer: Any) -> bool:
    """bool, whether a SentencePiece tokenizer puts a space before a text."""
    first = tokenizer.id_to_token(int(np.asarray(tokenizer("x"))[0]))
    return first.startswith(_SPACE)


def _sentencepiece(tokenizer: Any, path: pathlib.Path) -> Any:
    """A `tokenizers.Tokenizer` that is a SentencePiece one, which KerasHub exported.

    Beside a Mistral's config.json transformers 5 puts no space before a text, and none
    of its versions puts one before a text that begins with a space.
    """
    from tokenizers import decoders, normalizers

    exact = _loaded(path).backend_tokenizer
    there: list[Any] = [normalizers.Replace(" ", _SPACE)]
    back: list[Any] = [decoders.Replace(_SPACE, " ")]
    back += [decoders.ByteFallback(), decoders.Fuse()]
    if _puts_a_space(tokenizer):
        there.insert(0, normalizers.Prepend(_SPACE))
        back.append(decoders.Strip(" ", 1, 0))
    exact.normalizer, exact.pre_tokenizer = normalizers.Sequence(there), None
    exact.decoder = decoders.Sequence(back)
    return exact


def _add_settings(path: pathlib.Path, settings: dict[str, str | bool]) -> None:
    config = path / "tokenizer_config.json"
    written = json.loads(config.read_text(encoding="utf-8"))
    written |= {"clean_up_tokenization_spaces": False, **settings}
    config.write_text(json.dumps(written, indent=2), encoding="utf-8")


def _byte_level(tokenizer: keras.layers.Layer) -> Any:
    """A `tokenizers.Tokenizer` that is exactly a KerasHub `BytePairTokenizer`.

    KerasHub 0.32 does not cut text into words before it merges bytes (its pattern
    is taken for a literal string), but what it exports does.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if cuts_as_released(tokenizer):
        return Tokenizer.from_str(python_tokenizer(tokenizer).to_str())
    merges = [(a, b) for a, b in (merge.split(" ") for merge in merges_of(tokenizer))]
    exact = Tokenizer(models.BPE(vocab=dict(tokenizer.vocabulary), merges=merges))
    # Sorted by id: a set has no order.
    special = sorted(tokenizer.unsplittable_tokens or (), key=tokenizer.token_to_id)
    exact.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    exact.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=tokenizer.add_prefix_space, use_regex=False
    )
    exact.decoder = decoders.ByteLevel()
    return exact


def _write(exact: Any, tokenizer: Any, path: pathlib.Path, start: str | None) -> None:
    """Writes a `tokenizers.Tokenizer` over what KerasHub exported of its own.

    KerasHub puts the start token before every text; a Llama3's export does not.
    """
    from tokenizers import processors

    if start is not None:
        exact.post_processor = processors.TemplateProcessing(
            single=f"{start} $A",
            pair=f"{start} $A {start} $B",
            special_tokens=[(start, tokenizer.token_to_id(start))],
        )
    exact.save(str(path / "tokenizer.json"))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    _add_settings(path, tokenizer_config | {"add_bos_token": start is not None})
    for name in ("vocab.json", "merges.txt"):
        (path / name).unlink(missing_ok=True)
