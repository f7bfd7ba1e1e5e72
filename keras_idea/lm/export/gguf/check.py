"""A GGUF file, read back and, where llama.cpp is installed, run by it."""

import contextlib
import importlib
import os
import pathlib
from typing import Any

import numpy as np

from keras_idea.errors import ExportFailed
from keras_idea.lm.export.compare import (
    SHORTEST,
    Match,
    Subject,
    compare,
    first_difference,
)
from keras_idea.lm.export.gguf.tokenizer import TokenTable
from keras_idea.lm.export.gguf.types import Written
from keras_idea.lm.export.stock import Stock
from keras_idea.validation import missing

# Between logits of at most 1. In float32 llama.cpp still looks GELU up in a table of
# float16; in Q8_0 it computes with values of 8 bits, too. What 24 layers of random
# weights differ by, which make more of an error than trained ones, and some more.
_TOLERANCES = {"float32": 6e-3, "float16": 5e-2, "q8_0": 0.5, "q5_0": 1.2, "q4_0": 1.5}
# Of the tokens of a mixture whose weights are rounded. With each matrix in its place
# their logits were within the tolerance in 24 layers of random weights, too; with two
# of them swapped none were, in float16.
_FEW = 0.1
_ROUTED = (
    "It is a mixture of experts: where two are about as likely, rounded weights choose "
    "the other one, and what follows differs. So a tenth of the tokens had to agree, "
    "and greedy tokens were counted. Export float32, too, to have all compared."
)
_COARSE = (
    "Weights of 5 or 4 bits are rounded so much that the comparison of logits proves "
    "little. Export float32, too, to have the layout compared."
)
_NOT_RUN = (
    "Its tensors and tokens were read back; it was NOT run: that needs llama.cpp, "
    '`pip install llama-cpp-python`, beside "keras-idea[gguf]". Export again to have '
    "it run and compared."
)
_SHORT = (
    f"It was NOT run: its context is shorter than the {SHORTEST} tokens that models "
    "are compared on."
)


def check_file(
    source: Stock,
    path: pathlib.Path,
    parts: list[Written],
    vocabulary: TokenTable,
    dtype: str,
    context: int,
) -> tuple[Match | None, tuple[str, ...]]:
    """Reads a file back, and lets llama.cpp run it if it is installed.

    Returns:
        `Match` or None, and notes.

    Raises:
        ExportFailed: if the file, or what llama.cpp makes of it, is not the model.
    """
    _read_back(path, parts, vocabulary)
    if missing(["llama_cpp"]):
        return None, (_NOT_RUN,)
    if context < SHORTEST:
        return None, (_SHORT,)
    length = min(source.probe_length, context)
    experts = any(part.tensor.name.endswith("ffn_gate_inp.weight") for part in parts)
    routed = experts and dtype != "float32"
    with contextlib.closing(_loaded(path, length)) as llama:
        match = compare(
            source.subject,
            _subject(llama),
            source.vocabulary_size,
            _TOLERANCES[dtype],
            length,
            _FEW if routed else 1.0,
        )
        _check_tokens(llama, vocabulary)
    coarse = (_COARSE,) if dtype in ("q5_0", "q4_0") else ()
    return match, (_ROUTED, *coarse) if routed else coarse


def _read_back(
    path: pathlib.Path, parts: list[Written], vocabulary: TokenTable
) -> None:
    try:
        reader = importlib.import_module("gguf").GGUFReader(path)
    except Exception as error:
        raise ExportFailed(f"The GGUF file cannot be read back: {error}") from error
    found = {tensor.name: tensor for tensor in reader.tensors}
    if list(found) != [part.tensor.name for part in parts]:
        raise ExportFailed(f"The GGUF file holds other tensors: {', '.join(found)}.")
    for part in parts:
        tensor = found[part.tensor.name]
        # GGUF counts axes from the innermost.
        shape = tuple(int(n) for n in tensor.shape[::-1])
        same = (tensor.tensor_type.name, shape) == (part.type, part.tensor.shape)
        if not same or tensor.data.tobytes() != part.values().tobytes():
            raise ExportFailed(f"{part.tensor.name} was not written as it is.")
    if vocabulary.tokens:
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        if tokens != vocabulary.tokens:
            raise ExportFailed("The GGUF file holds another vocabulary.")


def _loaded(path: pathlib.Path, length: int) -> Any:
    """The `llama_cpp.Llama` of a file, its cache in float32."""
    import llama_cpp

    threads = max((os.cpu_count() or 1) // 2, 1)
    try:
        return llama_cpp.Llama(
            str(path),
            n_ctx=length,
            # Its threads wait by spinning: as many as cores are slow beside others.
            n_threads=threads,
            n_threads_batch=threads,
            logits_all=True,
            type_k=llama_cpp.GGML_TYPE_F32,
            type_v=llama_cpp.GGML_TYPE_F32,
            verbose=False,
        )
    except Exception as error:
        raise ExportFailed(f"llama.cpp cannot load the GGUF file: {error}") from error


def _subject(llama: Any) -> Subject:
    """What llama.cpp computes, as a `Subject` that continues texts by its cache."""

    def one(ids_T: np.ndarray) -> np.ndarray:
        llama.reset()
        llama.eval(ids_T.tolist())
        return llama.scores[: len(ids_T)].copy()

    def continued(ids_P: np.ndarray, num_tokens: int) -> list[int]:
        ids = [*ids_P.tolist(), int(one(ids_P)[-1].argmax())]
        while len(ids) < len(ids_P) + num_tokens:
            llama.eval(ids[-1:])
            ids.append(int(llama.scores[len(ids) - 1].argmax()))
        return ids

    return Subject(
        lambda ids_BT: np.stack([one(ids_T) for ids_T in ids_BT]),
        lambda ids_BP, num_tokens: np.array([continued(p, num_tokens) for p in ids_BP]),
    )


def _check_tokens(llama: Any, vocabulary: TokenTable) -> None:
    """Compares token ids, if they are to be the model's."""
    if vocabulary.encode is None:
        return
    # KerasHub's byte-level tokenizers know special tokens in a text, the others not.
    special = vocabulary.model == "gpt2"

    def encode(text: str) -> list[int]:
        return llama.tokenize(text.encode(), add_bos=False, special=special)

    difference = first_difference(vocabulary.encode, encode)
    if difference:
        raise ExportFailed(f"llama.cpp's token ids are others: {difference}")
