"""What a width is: neurons of each FFN of a model."""

import keyword
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.finding.targets import target_width
from keras_idea.groups.kinds import KINDS
from keras_idea.validation import did_you_mean

#: The name of the width at which all neurons compute.
FULL = "full"

#: An int, neurons of each FFN; a float in (0, 1), the share of each; or either by the
#: name of an FFN, of which those that are not named keep all.
Width: TypeAlias = int | float | Mapping[str, int | float]


def check_width(name: str, width: Any) -> Width:
    """Refuses what is no width; `name` is what the user calls it."""
    if isinstance(width, Mapping):
        if not width:
            raise ArgumentError(
                f"`{name}` must name an FFN at least. Received: {name}={{}}. Give an "
                "int, a share, or a dict by the names that `ki.find_ffns` shows."
            )
        return {ffn: _check_size(f"{name}[{ffn!r}]", n) for ffn, n in width.items()}
    return _check_size(name, width)


def _check_size(name: str, size: Any) -> int | float:
    if isinstance(size, numbers.Integral) and not isinstance(size, bool):
        if int(size) >= 1:
            return int(size)
    elif isinstance(size, numbers.Real) and 0.0 < float(size) < 1.0:
        return float(size)
    raise ArgumentError(
        f"`{name}` must be an int >= 1 (neurons of each FFN), or a float in (0, 1), "
        f"the share of them. Received: {name}={size!r}."
    )


def check_widths(widths: Any) -> dict[str, Width]:
    """Refuses `widths` that are no dict of names to widths, or name one twice."""
    if not isinstance(widths, Mapping) or not widths:
        raise ArgumentError(
            "`widths` must be a dict of names to widths. Received: "
            f'widths={widths!r}. For example {{"small": 0.25, "medium": 0.5}}.'
        )
    for name in widths:
        plain = isinstance(name, str) and name.isidentifier()
        taken = plain and (name in (FULL, "val") or name.startswith("val_"))
        if not plain or keyword.iskeyword(name) or taken:
            raise ArgumentError(
                "Names of `widths` must be words, as in the logs ('small_loss'). "
                f"'{FULL}' is that of the whole model, and 'val_' begins what the logs "
                f"say of a validation. Received: {name!r}."
            )
    checked = {
        name: check_width(f"widths[{name!r}]", width) for name, width in widths.items()
    }
    _check_distinct(checked)
    return checked


def neurons_at(name: str, width: Width, ffns: Sequence[FFN]) -> list[int]:
    """The neurons of each FFN at a width; refuses one that a model cannot have."""
    if isinstance(width, Mapping):
        names = [ffn.name for ffn in ffns]
        for given in width:
            if given not in names and given in KINDS:
                raise ArgumentError(
                    f"`{name}` counts the neurons of FFNs; attention heads and "
                    f"channels keep their number. Received: {given!r}. Give an int, a "
                    "share such as 0.5, or a dict by the names of FFNs. For fewer "
                    "heads, prune them first: ki.shrink(model, {'kv_groups': 0.5})."
                )
            if given not in names:
                raise ArgumentError(
                    f"`{name}` names an FFN that the model does not have. Received: "
                    f"{given!r}. It has: {', '.join(names)}."
                    f"{did_you_mean(given, names)}"
                )
    counts = []
    for ffn in ffns:
        size = width.get(ffn.name) if isinstance(width, Mapping) else width
        count = ffn.hidden_dim
        if size is not None:
            count = target_width(size, ffn.hidden_dim, round_to=1)
        if count > ffn.hidden_dim:
            raise ArgumentError(
                f"`{name}` is wider than {ffn.name}, which has {ffn.hidden_dim} "
                f"neurons. Received: {size}. Give a share, such as 0.5, or a dict by "
                "the names of FFNs."
            )
        if count % ffn.device_parts:
            raise ArgumentError(
                f"`{name}` must give a multiple of {ffn.device_parts}, the devices "
                f"that share the neurons of {ffn.name}. Received: {size}, which is "
                f"{count} of {ffn.hidden_dim} neurons. Give an int by which it can be "
                "divided."
            )
        counts.append(count)
    return counts


def all_neurons_at(
    widths: Mapping[str, Width], ffns: Sequence[FFN]
) -> dict[str, list[int]]:
    """The neurons of each FFN at each width, with those of "full".

    Refuses widths that are the same in this model.
    """
    full = [ffn.hidden_dim for ffn in ffns]
    found = {
        name: neurons_at(f"widths[{name!r}]", width, ffns)
        for name, width in widths.items()
    }
    _check_distinct({FULL: full, **found})
    return {FULL: full, **found}


def _check_distinct(widths: Mapping[str, Any]) -> None:
    names = list(widths)
    for place, name in enumerate(names):
        for other in names[:place]:
            if widths[other] == widths[name]:
                raise ArgumentError(
                    f"`widths` repeats a width: '{other}' and '{name}' are both "
                    f"{widths[name]}. Leave one of them out."
                )
