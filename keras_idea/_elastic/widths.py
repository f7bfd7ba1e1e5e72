"""Checks widths, counts the neurons of each, and draws the width of a step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_idea._finding.targets import target_width
from keras_idea._graph.group import FFN
from keras_idea._validation import check_choice, check_size
from keras_idea.errors import ArgumentError

#: The name of the width at which all neurons compute.
FULL = "full"
#: An int, neurons of each FFN; a float in (0, 1), the share of each; or either by the
#: name of an FFN. FFNs without an entry keep all neurons.
Width: TypeAlias = int | float | Mapping[str, int | float]
#: "turn", or a probability for each name.
Sample: TypeAlias = str | Mapping[str, float]


def check_width(name: str, width: Any) -> Width:
    """Returns a width; `name` is the argument that holds it."""
    if not isinstance(width, Mapping):
        return check_size(name, width)
    if not width:
        raise ArgumentError(
            f"`{name}` must name at least one FFN. Give an int, a share, or a dict by "
            "the names that `ki.find_ffns` shows."
        )
    return {ffn: check_size(f"{name}[{ffn!r}]", n) for ffn, n in width.items()}


def check_widths(widths: Any) -> dict[str, Width]:
    """Returns a dict of names to widths; names are those of the logs."""
    named = isinstance(widths, Mapping) and all(isinstance(n, str) for n in widths)
    if not named or not widths or FULL in widths:
        raise ArgumentError(
            f"`widths` must be a dict of names other than '{FULL}' to widths, such as "
            f'{{"small": 0.25, "medium": 0.5}}. Received: widths={widths!r}.'
        )
    return {name: check_width(f"widths[{name!r}]", w) for name, w in widths.items()}


def check_sample(sample: Any, names: Sequence[str]) -> Sample:
    """Returns "turn", or a dict of the probability of each width."""
    if sample == "turn":
        return sample
    given = dict(sample) if isinstance(sample, Mapping) else {}
    for name in given:
        check_choice("sample", name, [FULL, *names])
    odds = [given.get(name, 0.0) for name in names]
    total = sum(odds, start=given.get(FULL, 0.0))
    above = min(odds) > 0 and given.get(FULL, 0.0) >= 0
    if not above or not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ArgumentError(
            "`sample` must be 'turn', or a dict that gives each width a probability "
            f"above 0; their sum, with that of '{FULL}', must be 1. Received: "
            f"sample={sample!r}."
        )
    return given


def draw(
    sample: Sample, names: Sequence[str], seed: int, step: int, stride: int = 1
) -> str:
    """Returns the name of the width of a step: a function of the seed and the step.

    `names` are those of the widths other than "full". `stride` steps are executed at
    once, with one width.

    Example:
    >>> [draw("turn", ["small", "medium"], 0, step) for step in range(3)]
    ['full', 'small', 'medium']
    """
    every = (FULL, *names)
    if not isinstance(sample, Mapping):
        return every[step // stride % len(every)]
    odds = np.array([sample.get(name, 0.0) for name in every])
    rng = np.random.default_rng([seed, step])
    return every[rng.choice(len(odds), p=odds / odds.sum())]


def neurons_at(name: str, width: Width, ffns: Sequence[FFN]) -> list[int]:
    """Returns the neurons of each FFN at a width; `name` is the argument."""
    by_name = width if isinstance(width, Mapping) else {ffn.name: width for ffn in ffns}
    for given in by_name:
        check_choice(name, given, [ffn.name for ffn in ffns])
    counts = []
    for ffn in ffns:
        size = by_name.get(ffn.name, ffn.hidden_dim)
        count = target_width(size, ffn.hidden_dim, round_to=1)
        if count > ffn.hidden_dim or count % ffn.device_parts:
            raise ArgumentError(
                f"`{name}` must be at most the {ffn.hidden_dim} neurons of {ffn.name}, "
                f"and a multiple of the {ffn.device_parts} devices that share them. "
                f"Received: {size}."
            )
        counts.append(count)
    return counts
