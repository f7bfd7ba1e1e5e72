"""Removes tokens of a KerasHub language model, with their embeddings.

Shapes: V rows of token embeddings, v of which stay.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._keras.variables import copy_training
from keras_idea._surgery.copying import rebuilt
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_outputs, example_arrays
from keras_idea.hub.families import is_causal, is_task
from keras_idea.hub.kept import keep, kept_of
from keras_idea.hub.vocabulary import Tokens, most_used, tokens_of
from keras_idea.methods.calibration import Samples

# Arguments of backbones for the number of rows.
_SIZES = ("vocabulary_size", "vocab_size", "vocab_size_per_layer_input")
_INPUTS = {"token_ids", "padding_mask", "position_ids"}


def check_vocabulary(model: keras.Model) -> Tokens:
    """Returns the tokens of a model whose vocabulary can be made smaller."""
    why = None
    if not is_task(model) or not is_causal(model):
        why = "it is not a `CausalLM` of KerasHub"
    elif getattr(model.preprocessor, "tokenizer", None) is None:
        why = "it has no preprocessor with a tokenizer"
    elif not isinstance(model.input, dict) or not {*model.input} <= _INPUTS:
        why = "its inputs are not those of text alone"
    if why is not None:
        raise ArgumentError(
            f"The vocabulary of '{model.name}' cannot be made smaller: {why}. Remove "
            "'vocabulary' from `targets`."
        )
    return tokens_of(model.preprocessor.tokenizer)


def rows_of(model: Any) -> int:
    """Returns the number of tokens that a KerasHub task has embeddings of."""
    return int(model.backbone.token_embedding.input_dim)


def count_tokens(
    model: keras.Model, data: Any, num_samples: int
) -> tuple[np.ndarray, Any]:
    """Returns the count of each of V tokens, and the data for the other axes.

    Data are a text or an iterable of texts, or token ids as `shrink` takes them. The
    preprocessor makes the other data from the first `num_samples` texts, if any.
    """
    check_vocabulary(model)
    counts = np.zeros(rows_of(model), "int64")
    if isinstance(data, str):
        data = [data]
    if isinstance(data, Iterator):  # it can be read once
        data = list(data)
    listed = isinstance(data, Iterable) and not isinstance(data, Mapping)
    texts = listed and isinstance(next(iter(data), None), str)
    for ids in _ids_of_texts(model, data) if texts else _token_ids(data):
        ids = ids.astype("int64")
        # Some of KerasHub's tokenizers have tokens without a row.
        ids = ids[(ids >= 0) & (ids < len(counts))]
        counts += np.bincount(ids, minlength=len(counts))
    if not texts:
        return counts, data
    first = list(itertools.islice(data, num_samples))
    made = model.preprocessor(first) if first else None
    return counts, keras.tree.map_structure(ops.convert_to_numpy, made)


def _ids_of_texts(model: keras.Model, texts: Iterable[Any]) -> Iterator[np.ndarray]:
    """Yields the token ids of each text."""
    for text in texts:
        if not isinstance(text, str):
            raise ArgumentError(
                f"Each text must be a string. Received: {type(text).__name__}."
            )
        yield np.asarray(model.preprocessor.tokenizer(text))


def _token_ids(data: Any) -> Iterator[np.ndarray]:
    """Yields the token ids of each batch, without padding."""
    every = sys.maxsize
    for batch, *_ in Samples(data, every, every):
        if not isinstance(batch, Mapping) or "token_ids" not in batch:
            raise ArgumentError(
                "A target for 'vocabulary' needs texts, or token ids: a dict with "
                f"'token_ids', or batches of such. Received: {type(batch).__name__}."
            )
        ids = ops.convert_to_numpy(batch["token_ids"])
        mask = batch.get("padding_mask")
        yield ids.ravel() if mask is None else ids[ops.convert_to_numpy(mask) != 0]


def kept_tokens(model: keras.Model, size: int, counts: np.ndarray) -> np.ndarray:
    """Returns the old ids of the `size` tokens that stay, ascending.

    Raises if the tokenizer needs more, or does not have so many.
    """
    tokens, rows = check_vocabulary(model), rows_of(model)
    ids = {token: index for token, index in tokens.ids.items() if index < rows}
    demanded = tokens.demanded & ids.keys()
    if not len(demanded) <= size <= len(ids):
        raise ArgumentError(
            f"`targets['vocabulary']` must be from {len(demanded):,} to {len(ids):,} "
            "tokens: the bytes and special tokens of this tokenizer stay, and it has "
            f"no more. Received: {size:,} tokens."
        )
    used = {token: int(counts[index]) for token, index in ids.items()}
    ordered = sorted(ids, key=ids.__getitem__)
    stay = most_used(ordered, used, demanded, size, tokens.rank)
    return np.array(sorted(ids[token] for token in stay))


def take_tokens(model: Any, kept: np.ndarray) -> keras.Model:
    """Returns a new task with some tokens (ascending ids), whose ids become 0, 1, ...

    Tokens without a row get the ids after these. Raises if logits differ.
    """
    tokens, rows = check_vocabulary(model), rows_of(model)
    config = model.backbone.get_config()
    sizes = {name: len(kept) for name in _SIZES if config.get(name) == rows}
    copy = rebuilt(model, sizes)
    _take_along(model, copy, rows, kept)
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
    new = example_arrays(copy, 8)
    old = {**new, "token_ids": kept[new["token_ids"]].astype("int32")}

    def outputs(task: Any) -> list[np.ndarray]:
        logits = task(old if task is model else new, training=False)
        values = ops.convert_to_numpy(logits).astype("float64")
        return [values[..., kept] if task is model else values]

    check_same_outputs(model, copy, outputs)


def _take_along(
    model: keras.Model, copy: keras.Model, size: int, kept: np.ndarray
) -> None:
    """Copies what stays of each variable along the axes that are shorter in the copy.

    `size` is the length of these axes in the model. Keras raises if another differs.
    """
    for old, new in zip(model.variables, copy.variables, strict=True):
        copy_training(old, new)
        value = old.value
        for axis, lengths in enumerate(zip(old.shape, new.shape, strict=True)):
            if lengths == (size, len(kept)):
                value = ops.take(value, kept, axis=axis)
        new.assign(ops.copy(value))
