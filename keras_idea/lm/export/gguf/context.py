"""How many tokens a server may give a model at once, and what bounds them."""

import dataclasses
from typing import Any

# KerasHub's own default, for a model whose length nothing bounds.
_DEFAULT = 1024
_POSITIONS = "max_sequence_length", "max_position_embeddings"
_OTHER = "`length` (--length) sets another one"


@dataclasses.dataclass(frozen=True)
class Context:
    """The context, in tokens, that a GGUF file allows, and what bounds it, in words."""

    length: int
    why: str

    def __str__(self) -> str:
        """A line for the user."""
        return f"Its context is {self.length} tokens: {self.why}."


def context_of(lm: Any, arch: str, window: str, length: int | None = None) -> Context:
    """The context of a `CausalLM`: what is asked for, at most what the model allows.

    Without `length` all that the model allows; if its positions do not bound it, its
    preprocessor's length. `arch` and `window` are as of `GGUFFamily`.
    """
    b = lm.backbone
    bounds = [
        Context(getattr(b, name), f"`{name}` of the model")
        for name in _POSITIONS
        if getattr(b, name, None)
    ]
    if length is not None:
        asked = Context(length, "the length asked for, or that of the run")
    elif not bounds:
        usual = getattr(lm.preprocessor, "sequence_length", None)
        why = "the sequence length of its preprocessor" if usual else "the default"
        asked = Context(usual or _DEFAULT, f"{why}. {_OTHER}")
    else:
        asked = bounds[0]
    if window and getattr(b, window, None):
        why = (
            f"the sliding window of the model. llama.cpp's {arch!r} has no window, and "
            "within so many tokens a window cuts nothing off"
        )
        bounds.append(Context(getattr(b, window), why))
    # The first of equal ones: no `length` can go beyond what the model allows.
    return min([*bounds, asked], key=lambda bound: bound.length)
