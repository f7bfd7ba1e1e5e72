"""Text written piece by piece: with KerasHub's cache of keys and values, or without.

Shapes: B rows of one length, T tokens so far, L tokens of the cache.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import drawn_by, extend_rows


def has_cache(model: keras.Model) -> bool:
    """Whether a model generates with a cache: if it is a `CausalLM` of KerasHub's."""
    models = getattr(sys.modules.get("keras_hub"), "models", None)
    if models is None or not isinstance(model, models.CausalLM):
        return False
    return type(model).generate_step is not models.CausalLM.generate_step


class PlainWriter:
    """Writes with one pass over the window per token, as `generate`.

    Args:
        model: keras.Model, as for `generate`.
        window: int, tokens that the model sees at once.
        temperature: float, as for `generate`.
        top_k: int or None, as for `generate`.
        seed: int, of the draws.
    """

    #: Tokens of a short and of a long piece.
    pieces = (1, 1)

    def __init__(
        self,
        model: keras.Model,
        window: int,
        temperature: float = 0.8,
        top_k: int | None = None,
        seed: int = 0,
    ) -> None:
        self._next_tokens = drawn_by(model, window, temperature, top_k, seed)

    def add(self, text_BT: np.ndarray, count: int, piece: int) -> np.ndarray:
        """The text with `count` more tokens in each row."""
        return np.array(extend_rows(self._next_tokens, text_BT, count), "int32")


class CachedWriter:
    """Writes with the cache of a KerasHub `CausalLM`, by its own samplers.

    Its tokens are those of `generate` until a text is as long as the window, if they
    are the likeliest ones. Then a piece is written after the last tokens that leave
    room for it, half a window or more.

    A piece costs one pass over `length` tokens, which fills the cache, and one over a
    token for each of its tokens. The model's own sampler and compiled function are put
    back after each piece.

    Args:
        model: keras.Model for which `has_cache` is true, without a preprocessor.
        length: int, tokens of the cache: at most the window, at least 2. One length
            and one `piece` are compiled once.
        temperature: float >= 0, as for `generate`.
        top_k: int or None, as for `generate`.
        seed: int, of the draws.
    """

    pieces = (8, 64)

    def __init__(
        self,
        model: keras.Model,
        length: int,
        temperature: float = 0.8,
        top_k: int | None = None,
        seed: int = 0,
    ) -> None:
        self._model: Any = model
        self._length = max(2, length)
        if top_k is not None:
            top_k = min(top_k, model.output_shape[-1])
        self._sampler = _sampler(temperature, top_k, seed)
        self._functions: dict[int, Callable] = {}  # by the tokens of a piece

    def add(self, text_BT: np.ndarray, count: int, piece: int) -> np.ndarray:
        """The text with `count` more tokens in each row, at most `piece` at once."""
        if text_BT.shape[1] + count > self._length:
            piece = min(piece, self._length // 2)
        while count:
            new = min(piece, count)
            held_BT = text_BT[:, -(self._length - new) :]
            written_BT = self._after(held_BT, piece)[:, :new]
            text_BT, count = np.concatenate([text_BT, written_BT], axis=1), count - new
        return text_BT

    def _after(self, held_BT: np.ndarray, piece: int) -> np.ndarray:
        """The tokens of the cache behind those held; the first of a piece are drawn."""
        rows, count = held_BT.shape
        ids_BL = np.zeros((rows, self._length), "int32")
        ids_BL[:, :count] = held_BT
        mask_BL = np.broadcast_to(np.arange(self._length) < count, ids_BL.shape)
        inputs = token_inputs(self._model, ids_BL, mask_BL)
        tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
        with self._sampling(piece) as generate:
            written = generate(tensors, stop_token_ids=None)["token_ids"]
        return keras.ops.convert_to_numpy(written).astype("int32")[:, count:]

    @contextlib.contextmanager
    def _sampling(self, piece: int) -> Iterator[Callable]:
        """The model's function that generates, which draws `piece` tokens at most."""
        model = self._model
        before = model.sampler, model.generate_function
        self._sampler.most = piece
        model.sampler = self._sampler
        model.generate_function = self._functions.get(piece)
        try:
            self._functions[piece] = model.make_generate_function()
            yield self._functions[piece]
        finally:
            model.sampler, model.generate_function = before


def writer_of(
    model: keras.Model, window: int, tokens: int, **sampling: Any
) -> PlainWriter | CachedWriter:
    """What writes texts of up to `tokens` with a model that sees `window` at once."""
    if has_cache(model):
        return CachedWriter(model, min(window, tokens), **sampling)
    return PlainWriter(model, window, **sampling)


def _sampler(temperature: float, top_k: int | None, seed: int) -> Any:
    """A sampler of KerasHub's that ends after `most` tokens, not with the cache."""
    from keras_hub import samplers

    how: dict[str, Any] = {"temperature": temperature, "seed": seed}
    base: Any = samplers.RandomSampler
    if temperature == 0:
        base, how = samplers.GreedySampler, {}
    elif top_k is not None:
        base, how = samplers.TopKSampler, {**how, "k": top_k}

    class Piece(base):
        most = 0

        def run_loop(
            self, *parts: Any, maximum_iterations: Any, **others: Any
        ) -> object:
            fewer = keras.ops.minimum(maximum_iterations, self.most)
            return super().run_loop(*parts, maximum_iterations=fewer, **others)

    return Piece(**how)
