"""Text generation from any causal model of token ids, without a cache.

Shapes: B batch, P prompt tokens, W window, V vocabulary.
"""

import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.validation import check_int, check_number


def sample(logits_BV, rng, temperature=0.8, top_k=None):
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


def token_inputs(model, ids_BT, mask_BT=None):
    """Token ids in the form that a model takes.

    Args:
        model: keras.Model of token ids; or of a dict with "token_ids" and
            "padding_mask", as KerasHub's.
        ids_BT: int array (batch, tokens).
        mask_BT: bool array (batch, tokens) or None, which tokens are no padding.
            Defaults to None: all of them.

    Returns:
        `ids_BT`, or a dict of int32 arrays (batch, tokens).

    Example:
    >>> model.evaluate(token_inputs(model, x), y)
    """
    if not isinstance(getattr(model, "input", None), dict):
        return ids_BT
    mask_BT = np.ones_like(ids_BT) if mask_BT is None else mask_BT
    return {"token_ids": ids_BT, "padding_mask": mask_BT.astype("int32")}


def _as_ids(prompt_ids):
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
    model,
    prompt_ids,
    num_tokens,
    *,
    temperature=0.8,
    top_k=None,
    seed=0,
    window=None,
):
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
    >>> ids = generate(model, prompt, 100, window=128)
    >>> print(bytes(ids.tolist()).decode("utf-8", "replace"))
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
    ids = np.atleast_2d(prompt_ids)
    batch, prompt_length = ids.shape
    length = prompt_length + num_tokens
    if window is None:
        inputs = getattr(model, "input", None)
        if isinstance(inputs, dict):
            inputs = inputs["token_ids"]
        window = getattr(inputs, "shape", (None, None))[1] or length
    window = check_int("window", window, minimum=1)

    rng = np.random.default_rng(seed)
    ids = np.concatenate([ids, np.zeros((batch, num_tokens), "int32")], axis=1)
    for end in range(prompt_length, length):
        start = max(0, end - window)
        seen_BW = np.zeros((batch, window), "int32")
        seen_BW[:, : end - start] = ids[:, start:end]
        filled_BW = np.tile(np.arange(window) < end - start, (batch, 1))
        logits_BTV = model.predict_on_batch(token_inputs(model, seen_BW, filled_BW))
        logits_BV = logits_BTV[:, end - start - 1]
        ids[:, end] = sample(logits_BV, rng, temperature, top_k)
    return ids.reshape(*prompt_ids.shape[:-1], length)
