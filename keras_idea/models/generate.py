"""Text generation from any causal model of token ids, without a cache.

Shapes: B batch, P prompt tokens, W window, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_idea.errors import ArgumentError
from keras_idea.hub.inputs import token_inputs
from keras_idea.validation import check_int, check_number


def sample(
    logits_BV: ArrayLike,
    rng: np.random.Generator,
    temperature: float = 0.8,
    top_k: int | None = None,
) -> np.ndarray:
    """Draws one token id a row from softmax(logits / temperature).

    Adding Gumbel noise and taking the largest is an exact draw from the softmax.

    Args:
        logits_BV: float array (batch, vocabulary).
        rng: numpy.random.Generator.
        temperature: float >= 0; 0 takes the largest logit, the lower id on ties.
            Defaults to 0.8.
        top_k: int or None, draw among the k largest logits only; those that tie
            with the k-th stay in. Defaults to None: among all.

    Returns:
        int64 array (batch,).

    Raises:
        ValueError: if a logit is NaN.

    Example:
    >>> sample(np.log([[0.1, 0.9]]), np.random.default_rng(0), temperature=0)
    array([1])
    """
    logits_BV = np.asarray(logits_BV, "float64")
    if np.isnan(logits_BV).any():
        raise ArgumentError(
            "The model returned logits that are NaN. Either its training diverged, or "
            "a token id lies outside its vocabulary."
        )
    if temperature == 0:
        return logits_BV.argmax(-1)
    if top_k is not None and top_k < logits_BV.shape[-1]:
        kth_B1 = np.partition(logits_BV, -top_k, axis=-1)[:, -top_k, None]
        logits_BV = np.where(logits_BV < kth_B1, -np.inf, logits_BV)
    return (logits_BV / temperature + rng.gumbel(size=logits_BV.shape)).argmax(-1)


def last_logits(
    logits: Callable, rows: Sequence[Sequence[int]], window: int
) -> np.ndarray:
    """The logits `(B, V)` after each row, which is padded on the right to the window.

    `logits` is a function of int32 ids (B, W) and of a bool mask (B, W), which of them
    are no padding. Of rows longer than the window the last W tokens are seen.
    """
    ends_B = np.minimum([len(row) for row in rows], window)
    mask_BW = np.arange(window) < ends_B[:, None]
    ids_BW = np.zeros(mask_BW.shape, "int32")
    for ids_W, row, end in zip(ids_BW, rows, ends_B, strict=True):
        ids_W[:end] = row[-end:]
    return np.asarray(logits(ids_BW, mask_BW))[np.arange(len(rows)), ends_B - 1]


def extend_rows(
    next_tokens: Callable[[list[list[int]]], Iterable[int]],
    rows: Iterable[Iterable[int]],
    num_tokens: int | Sequence[int],
    ended: Callable[[int, list[int]], bool] = lambda row, new: False,
) -> list[list[int]]:
    """Continues rows of token ids in lock-step, a token at a time.

    Args:
        next_tokens: function of the rows that go on that returns the next token of
            each.
        rows: the rows of token ids.
        num_tokens: tokens to add to each; a sequence: to each its own.
        ended: function of the number of a row and of its new tokens: whether it ends
            with them.

    Example:
    >>> extend_rows(lambda rows: [row[-1] + 1 for row in rows], [[3], [7, 8]], 2)
    [[3, 4, 5], [7, 8, 9, 10]]
    """
    texts = [[int(token) for token in row] for row in rows]
    begins = [len(text) for text in texts]
    ends = np.add(begins, num_tokens)
    going = [i for i, text in enumerate(texts) if len(text) < ends[i]]
    while going:
        tokens = next_tokens([texts[i] for i in going])
        for i, token in zip(going, tokens, strict=True):
            texts[i].append(int(token))
        going = [
            i
            for i in going
            if not ended(i, texts[i][begins[i] :]) and len(texts[i]) < ends[i]
        ]
    return texts


def greedy(
    logits: Callable[[np.ndarray], np.ndarray],
    prompts_BP: Iterable[Iterable[int]],
    num_tokens: int,
    window: int,
) -> np.ndarray:
    """Continues prompts with the likeliest token, the lower id on ties.

    `logits` is a function of int32 ids (B, W). It is always given `window` tokens, so
    that nothing is compiled twice: what is not there yet are zeros on the right.

    Example:
    >>> greedy(model.predict_on_batch, [[3, 1, 4]], 5, window=16).shape
    (1, 8)
    """

    def next_tokens(rows: list[list[int]]) -> np.ndarray:
        return last_logits(lambda ids, mask: logits(ids), rows, window).argmax(-1)

    return np.array(extend_rows(next_tokens, prompts_BP, num_tokens), "int32")


def _as_ids(prompt_ids: ArrayLike) -> np.ndarray:
    try:
        ids = np.asarray(prompt_ids)
    except ValueError:
        ids = np.empty(0)  # rows of different length, refused below
    if (
        ids.ndim not in (1, 2)
        or ids.size == 0
        or ids.dtype.kind not in "iu"
        or ids.min() < 0
    ):
        raise ArgumentError(
            "`prompt_ids` must be non-negative integers of shape (tokens,) or (batch, "
            "tokens), one token or more, rows of equal length. Received: "
            f"prompt_ids={prompt_ids!r}. Generate prompts of different lengths one by "
            "one, and begin an empty one with a separator token."
        )
    return ids.astype("int32")


def generate(
    model: keras.Model,
    prompt_ids: ArrayLike,
    num_tokens: int,
    *,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
    window: int | None = None,
) -> np.ndarray:
    """Continues prompts token by token.

    Each token costs one forward pass over a window of fixed shape, so that a
    compiling backend compiles once. The text fills the window from the left and
    slides through it when it has grown longer; the padding on the right is never
    seen, because the model is causal.

    Args:
        model: keras.Model, int32 ids (batch, tokens) to logits (batch, tokens,
            vocabulary), causal; or a KerasHub `CausalLM` without a preprocessor.
        prompt_ids: int array (tokens,) or (batch, tokens), one token or more.
        num_tokens: int, tokens to add to each prompt.
        temperature: float >= 0, 0 is greedy. Defaults to 0.8.
        top_k: int or None, draw among the k likeliest tokens only. Defaults to
            None: among all.
        seed: int, of the draws. Defaults to 0.
        window: int or None, tokens the model sees at once, usually the length it
            was trained on. Defaults to None: the length of the model's input if
            that is fixed, else the prompt and all new tokens. The same window in
            several calls means one compilation for them all.

    Returns:
        int32 NumPy array like `prompt_ids`, `num_tokens` longer: prompt and
        continuation.

    Raises:
        ValueError: if an argument is out of range, the model has a preprocessor, or
            its logits are NaN.

    Example:
    >>> prompt = np.frombuffer(b"def ", dtype="uint8")
    >>> bytes(generate(model, prompt, 12, window=16).tolist())
    b'def ...'
    """
    prompt_ids = _as_ids(prompt_ids)
    num_tokens = check_int("num_tokens", num_tokens, minimum=0)
    temperature = check_number("temperature", temperature)
    if top_k is not None:
        top_k = check_int("top_k", top_k, minimum=1)
    if getattr(model, "preprocessor", None) is not None:
        raise ArgumentError(
            "The model has a preprocessor, which takes text, but `generate` gives it "
            "token ids. Set `model.preprocessor = None`, or call `model.generate`."
        )
    if window is None:
        window = _input_length(model) or prompt_ids.shape[-1] + num_tokens
    window = check_int("window", window, minimum=1)
    next_tokens = drawn_by(model, window, temperature, top_k, seed)
    rows = extend_rows(next_tokens, np.atleast_2d(prompt_ids), num_tokens)
    return np.array(rows, "int32").reshape(*prompt_ids.shape[:-1], -1)


def drawn_by(
    model: keras.Model,
    window: int,
    temperature: float = 0.8,
    top_k: int | None = None,
    seed: int = 0,
) -> Callable[[Sequence[Sequence[int]]], np.ndarray]:
    """A function of rows of ids that draws the next token of each, without a cache."""
    rng = np.random.default_rng(seed)

    def logits(ids_BW: np.ndarray, mask_BW: np.ndarray) -> np.ndarray:
        return model.predict_on_batch(token_inputs(model, ids_BW, mask_BW))

    def next_tokens(rows: Sequence[Sequence[int]]) -> np.ndarray:
        return sample(last_logits(logits, rows, window), rng, temperature, top_k)

    return next_tokens


def _input_length(model: keras.Model) -> int | None:
    """The length of a model's input, if it is fixed."""
    inputs = getattr(model, "input", None)
    if isinstance(inputs, dict):
        inputs = inputs["token_ids"]
    return getattr(inputs, "shape", (None, None))[1]
