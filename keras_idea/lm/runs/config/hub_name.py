"""The name of a KerasHub family in a run's description."""

import re
from typing import NoReturn

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import FAMILIES, HUB_FAMILIES, PRESET_FAMILIES
from keras_idea.hub.family import Family
from keras_idea.validation import check_choice


def check_hub(name: str, value: object) -> str | None:
    """Returns `value` if a run can make that family from nothing, or if it is None.

    Of another family that is known it says how to prune it.

    Example:
    >>> check_hub("model.hub", "gpt2")
    Traceback (most recent call last):
    keras_idea.errors.ArgumentError: `model.hub` cannot be 'gpt2': a run cannot make...
    """
    if value is None:
        return None
    for family in FAMILIES.values():
        short = _bare(family.prefix)
        if _bare(value) == short and short not in map(_bare, HUB_FAMILIES):
            _refuse(name, value, family)
    return str(check_choice(name, value, tuple(HUB_FAMILIES)))


def _refuse(name: str, value: object, family: Family) -> NoReturn:
    begin, received = f"`{name}` cannot be {value!r}: ", f"Received: {name}={value!r}."
    if family.refused:
        raise ArgumentError(f"{begin}{family.refused}. {received} Use another family.")
    if family.prefix not in PRESET_FAMILIES:
        raise ArgumentError(
            f"{begin}runs train causal language models without experts. {received} "
            "Prune it in a script, with `keras_idea.IdeaPruneCallback`."
        )
    raise ArgumentError(
        f"{begin}a run cannot make a {family.prefix} model from nothing. {received} "
        "Delete `hub`, and set `model.preset` to a trained model of that family: a "
        "preset's folder or handle."
    )


def _bare(name: object) -> str:
    """Letters and digits alone: people write "gpt2", "GPT-2" and "gpt_2"."""
    return re.sub("[^a-z0-9]", "", name.lower()) if isinstance(name, str) else ""
