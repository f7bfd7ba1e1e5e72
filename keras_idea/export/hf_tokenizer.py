"""The tokenizer of an export to Hugging Face, made exactly the model's own."""

import contextlib
import json
import pathlib
import shutil
import types
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_idea.export.released import AS_RELEASED, merges_of, released_name
from keras_idea.export.tokenizer_check import first_difference
from keras_idea.hub.inputs import start_token

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
    "There is NO tokenizer in it: KerasHub's export of this one encodes otherwise "
    "than its own; {difference} Use the preset's."
)


def settle_tokenizer(
    preprocessor: keras.layers.Layer | None, path: pathlib.Path
) -> tuple[str, ...]:
    """Makes the tokenizer of an exported folder the model's, or takes it out.

    A released one is left as it is: llama.cpp's converter knows it by what it makes of
    a text.

    Args:
        preprocessor: the model's `CausalLMPreprocessor`, or None.
        path: path of the folder.

    Returns:
        tuple of str, what the user should know of it.
    """
    if preprocessor is None or not _tokenizer_difference(preprocessor, path):
        return ()
    released = released_name(preprocessor.tokenizer)
    if released:
        return (AS_RELEASED.format(name=released),)
    _mend(preprocessor.tokenizer, path, start_token(preprocessor))
    difference = _tokenizer_difference(preprocessor, path)
    if not difference:
        return ()
    # Beside a config.json transformers may take the family's class whatever the
    # tokenizer's own files say: Qwen's cuts the text as it likes.
    apart = path / APART
    apart.mkdir()
    for name in TOKENIZER_FILES:
        if (path / name).exists():
            (path / name).rename(apart / name)
    if not _tokenizer_difference(preprocessor, apart):
        return (_TOKENIZER_APART,)
    shutil.rmtree(apart)
    return (_NO_TOKENIZER.format(difference=difference),)


def _tokenizer_difference(preprocessor: keras.layers.Layer, path: pathlib.Path) -> str:
    import transformers

    tokenizer = preprocessor.tokenizer
    start = [tokenizer.start_token_id] if start_token(preprocessor) else []

    def with_start(text: str) -> list[int]:
        return [*start, *np.asarray(tokenizer(text)).tolist()]

    with quiet(transformers):
        try:
            loaded = transformers.AutoTokenizer.from_pretrained(path)
        except Exception as error:
            return f"transformers cannot load it: {error}."
    return first_difference(with_start, loaded.encode)


def _mend(tokenizer: keras.layers.Layer, path: pathlib.Path, start: str | None) -> None:
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


def _byte_level(tokenizer: keras.layers.Layer, start: str | None) -> Any:
    """A `tokenizers.Tokenizer` that is exactly a KerasHub `BytePairTokenizer`."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
    )

    merges = [(a, b) for a, b in (merge.split(" ") for merge in merges_of(tokenizer))]
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


@contextlib.contextmanager
def quiet(transformers: types.ModuleType) -> Iterator[None]:
    """Without progress bars and warnings: what matters is told in an error."""
    logging = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
