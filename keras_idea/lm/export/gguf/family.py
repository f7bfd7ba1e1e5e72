"""What llama.cpp is told of a KerasHub family: a row of the table of families."""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras_idea.hub.family import Rule
from keras_idea.lm.export.gguf.keys import Value
from keras_idea.lm.export.gguf.layouts import Places


@dataclasses.dataclass(frozen=True)
class GGUFFamily:
    """What llama.cpp is told of a backbone.

    Attributes:
        arch: str, llama.cpp's name of the architecture.
        ends: dict, tensor -> its parts, outside of the blocks.
        block: dict, as `ends`, of one block.
        keys: function of the backbone that returns a dict, key -> value, of what
            other families do not have; the file puts the architecture before it.
        rules: tuple of `Rule`, what must hold, or llama.cpp computes something else.
        window: str, attribute of the backbone that bounds the context, because
            llama.cpp's architecture has no sliding window; "": there is none.
        follows: tuple of str, paths of variables in a block that are no weights:
            they follow from the keys.
    """

    arch: str
    ends: Places
    block: Places
    keys: Callable[[Any], dict[str, Value]]
    rules: tuple[Rule, ...] = ()
    window: str = ""
    follows: tuple[str, ...] = ()
