"""Removes tokens of a KerasHub language model, with their embeddings.

Shapes: V rows of token embeddings, v of which stay.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._shapes.features import take_along
from keras_idea._shapes.targets import VOCABULARY, size_of
from keras_idea._surgery.copying import rebuilt
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_outputs, probe_of
from keras_idea.hub.families import is_causal, is_task
from keras_idea.hub.kept import keep, kept_of
from keras_idea.hub.vocabulary import Tokens, most_used, tokens_of
from keras_idea.methods.calibration import Samples

# Arguments of backbones for the number of rows.
_SIZES = ("vocabulary_size", "vocab_size", "vocab_size_per_layer_input")
_LEAVE = f"Remove {VOCABULARY!r} from `targets`."


def check_vocabulary(model: keras.Model) -> Tokens:
    """Returns the tokens of a model whose vocabulary can be made smaller."""
    why = None
    if not is_task(model) or not is_causal(model):
        why = "it is not a `CausalLM` of KerasHub"
    elif getattr(model.preprocessor, "tokenizer", None) is None:
        why = "it has no preprocessor with a tokenizer"
    elif not isinstance(model.input, dict) or probe_of(model) is None:
        why = "its inputs are not those of text alone"
    if why is not None:
        raise ArgumentError(
            f"The vocabulary of '{model.name}' cannot be made smaller: {why}. {_LEAVE}"
        )
    return tokens_of(model.preprocessor.tokenizer)


def count_tokens(
    model: keras.Model, data: Any, num_samples: int
) -> tuple[np.ndarray, Any]:
    """Returns the count of each of V tokens, and the data for the other axes.

    Data are a text or an iterable of texts, or token ids as `shrink` takes them. The
    preprocessor makes the other data from the first `num_samples` texts, if any.
    """
    check_vocabulary(model)
    counts = np.zeros(rows_of(model.backbone), "int64")
    if data is None:
        raise ArgumentError(
            "shrink() keeps the tokens that texts use most. Give `data`: an iterable "
            "of strings, or token ids. Received: data=None."
        )
    texts = texts_in(data)
    if texts is None:
        for ids in _token_ids(data):
            counts += _counted(ids, len(counts))
        return counts, data
    first: list[str] = []
    empty = True
    for text in texts:
        empty = False
        ids = np.asarray(model.preprocessor.tokenizer(text))
        counts += _counted(ids, len(counts))
        if len(first) < num_samples:
            first.append(text)
    if empty:
        raise ArgumentError("`data` hold no text. Give at least one string.")
    if not first:
        return counts, None
    return counts, keras.tree.map_structure(
        ops.convert_to_numpy, model.preprocessor(first)
    )


def texts_in(data: Any) -> Iterable[str] | None:
    """Returns the strings in a string, an iterable or a generator, else None."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        return None
    if isinstance(data, Iterator):  # it can be read once
        data = list(data)
    first = next(iter(data), None)
    if not isinstance(first, str):
        return [] if first is None else None
    return (_checked(text) for text in data)


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise ArgumentError(
            f"Each text must be a string. Received: {type(text).__name__}."
        )
    return text


def _token_ids(data: Any) -> Iterator[np.ndarray]:
    """Yields the token ids of each batch, without padding."""
    every = sys.maxsize
    for batch, *_ in Samples(data, every, every):
        if not isinstance(batch, Mapping) or "token_ids" not in batch:
            raise ArgumentError(
                "A target for 'vocabulary' needs texts, or token ids: a dict with "
                "'token_ids', or batches of such. Received: "
                f"{type(batch).__name__}."
            )
        ids = ops.convert_to_numpy(batch["token_ids"])
        mask = batch.get("padding_mask")
        yield ids.ravel() if mask is None else ids[ops.convert_to_numpy(mask) != 0]


def _counted(ids: np.ndarray, rows: int) -> np.ndarray:
    ids = ids.astype("int64")
    # Some of KerasHub's tokenizers have tokens without a row.
    return np.bincount(ids[(ids >= 0) & (ids < rows)], minlength=rows)


def rows_of(backbone: Any) -> int:
    """Returns the number of tokens that a KerasHub backbone has embeddings of."""
    return int(backbone.token_embedding.input_dim)


def kept_tokens(model: keras.Model, target: int | float, counts: np.ndarray) -> Any:
    """Returns the old ids of the tokens that stay, ascending."""
    tokens, rows = check_vocabulary(model), rows_of(model.backbone)
    size = check_size(tokens, target, rows, model.name)
    ids = _with_rows(tokens, rows)
    used = {token: int(counts[index]) for token, index in ids.items()}
    ordered = sorted(ids, key=ids.__getitem__)
    demanded = tokens.demanded & ids.keys()
    stay = most_used(ordered, used, demanded, size, tokens.rank)
    return np.array(sorted(ids[token] for token in stay))


def check_size(tokens: Tokens, target: int | float, rows: int, owner: str) -> int:
    """Returns how many tokens stay; raises if the tokenizer needs more."""
    size = size_of(VOCABULARY, target, rows, owner)
    ids = _with_rows(tokens, rows)
    least = len(tokens.demanded & ids.keys())
    if not least <= size <= len(ids):
        raise ArgumentError(
            f"`targets[{VOCABULARY!r}]` must be from {least:,} to {len(ids):,} tokens: "
            "the bytes and special tokens of this tokenizer stay, and it has no more. "
            f"Received: {target!r}, which is {size:,} tokens."
        )
    return size


def _with_rows(tokens: Tokens, rows: int) -> dict[str, int]:
    return {token: index for token, index in tokens.ids.items() if index < rows}


def take_tokens(model: Any, kept: np.ndarray) -> keras.Model:
    """Returns a new task with some tokens (ascending ids), whose ids become 0, 1, ...

    Tokens of the tokenizer that have no row get the ids after these. Raises if the new
    logits of the kept tokens differ.
    """
    tokens, rows = check_vocabulary(model), rows_of(model.backbone)
    config = model.backbone.get_config()
    sizes = {name: len(kept) for name in _SIZES if config.get(name) == rows}
    copy = rebuilt(model, sizes)
    take_along(model, copy, rows, kept, VOCABULARY)
    beyond = sorted(index for index in tokens.ids.values() if index >= rows)
    places = {int(old): new for new, old in enumerate([*kept, *beyond])}
    ids = {t: places[index] for t, index in tokens.ids.items() if index in places}
    old = model.preprocessor
    copy.preprocessor = type(old).from_config(
        {**old.get_config(), "tokenizer": tokens.smaller(ids)}
    )
    files = kept_of(model)
    keep(copy, None if files is None else files.without_tokenizer())
    _check_same_logits(model, copy, kept)
    return copy


def _check_same_logits(model: Any, copy: Any, kept: np.ndarray) -> None:
    new = probe_of(copy)
    assert new is not None  # see `check_vocabulary`
    old = {**new, "token_ids": kept[new["token_ids"]].astype("int32")}

    def outputs(task: Any) -> np.ndarray:
        logits = task(old if task is model else new, training=False)
        values = ops.convert_to_numpy(logits).astype("float64")
        return values[..., kept] if task is model else values

    check_same_outputs(model, copy, outputs)
