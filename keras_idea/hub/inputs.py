"""What a causal model is given for token ids: KerasHub's take a dict of arrays.

Shapes: B batch, T tokens.
"""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError


def token_inputs(
    model: keras.Model, ids_BT: Tensor, mask_BT: np.ndarray | None = None
) -> Tensor | dict[str, Tensor]:
    """Token ids as a model takes them: as they are, or as `text_inputs` returns them.

    Example:
    >>> loss = model.evaluate(token_inputs(model, x), y, verbose=0)
    """
    names = getattr(model, "input", None)
    if not isinstance(names, dict):
        return ids_BT
    return text_inputs(names, ids_BT, mask_BT)


def text_inputs(
    names: Iterable[str], ids_BT: Tensor, mask_BT: np.ndarray | None = None
) -> dict[str, Tensor]:
    """Inputs of a KerasHub model by their names, for token ids.

    `mask_BT` says which tokens are no padding; None: all. The ids stay as they are, the
    others are int32. Refuses an input that does not follow from the ids.

    Example:
    >>> text_inputs(["token_ids", "position_ids"], np.array([[5, 6]]))
    {'token_ids': array([[5, 6]]), 'position_ids': array([[0, 1]], dtype=int32)}
    """
    of: Any = np if isinstance(ids_BT, np.ndarray) else keras.ops
    ones_BT = of.ones_like(ids_BT, dtype="int32")
    known = {
        "token_ids": ids_BT,
        "padding_mask": ones_BT if mask_BT is None else mask_BT.astype("int32"),
        "position_ids": of.cumsum(ones_BT, axis=1, dtype="int32") - 1,
    }
    names = list(names)
    others = [name for name in names if name not in known]
    if others:
        raise ArgumentError(
            f"A model of text alone takes {', '.join(known)}; this one takes "
            f"{others[0]!r} too. Give one without."
        )
    return {name: known[name] for name in names}
