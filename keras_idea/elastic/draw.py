"""Which widths a step computes: a function of the seed and of the step alone.

So a run that is resumed draws as one that was never stopped, and each of several
processes draws the same.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_idea.elastic.widths import FULL
from keras_idea.errors import ArgumentError
from keras_idea.validation import did_you_mean

#: "turn", "sandwich", or a probability for each name.
Sample: TypeAlias = str | Mapping[str, float]

TURN, SANDWICH = "turn", "sandwich"


def check_sample(sample: Any, names: Sequence[str]) -> Sample:
    """Refuses what says nothing of how the widths of these names are drawn."""
    if isinstance(sample, str) and sample in (TURN, SANDWICH):
        return sample
    if not isinstance(sample, Mapping):
        raise ArgumentError(
            f"`sample` must be '{TURN}', '{SANDWICH}', or a dict of probabilities. "
            f"Received: sample={sample!r}.{did_you_mean(sample, (TURN, SANDWICH))}"
        )
    for name, odds in sample.items():
        if name not in (FULL, *names):
            raise ArgumentError(
                f"`sample` names a width that is not in `widths`. Received: {name!r}. "
                f"Names are: {', '.join([FULL, *names])}."
            )
        number = isinstance(odds, numbers.Real) and not isinstance(odds, bool)
        if not number or not 0.0 <= odds <= 1.0:
            raise ArgumentError(
                f"`sample` must give probabilities in [0, 1]. Received: {name}={odds!r}"
            )
    untrained = [name for name in names if not sample.get(name)]
    if untrained:
        raise ArgumentError(
            f"`sample` never draws {', '.join(untrained)}. Received: sample={sample!r}."
            " Give each width a probability above 0, or leave it out of `widths`."
        )
    if not math.isclose(sum(sample.values()), 1.0, abs_tol=1e-6):
        raise ArgumentError(
            f"`sample` must give probabilities whose sum is 1, with that of '{FULL}'. "
            f"Received: sample={sample!r}, whose sum is {sum(sample.values()):.6g}."
        )
    return dict(sample)


def shares(sample: Sample, names: Sequence[str]) -> dict[str, float]:
    """The share of the steps that compute each width; as `draw` takes them.

    Example:
    >>> shares("sandwich", ["small", "medium"])
    {'full': 1.0, 'small': 1.0, 'medium': 1.0}
    >>> shares({"small": 0.25, "full": 0.75}, ["small"])
    {'full': 0.75, 'small': 0.25}
    """
    every = (FULL, *names)
    if sample == TURN:
        return dict.fromkeys(every, 1 / len(every))
    if sample == SANDWICH:
        between = dict.fromkeys(names[1:], 1 / max(1, len(names) - 1))
        return {FULL: 1.0, names[0]: 1.0, **between}
    assert isinstance(sample, Mapping)
    return {name: sample.get(name, 0.0) for name in every}


def draw(
    sample: Sample, names: Sequence[str], seed: int, step: int, stride: int = 1
) -> tuple[str, ...]:
    """The names of the widths that a step computes; one, but for "sandwich".

    Args:
        sample: as `ElasticCallback` takes it.
        names: list of str, those of the widths but "full", from the narrowest on.
        seed: int >= 0.
        step: int >= 0, the optimizer steps taken before it.
        stride: int >= 1, the steps that are executed at once, by one draw.

    Example:
    >>> [draw("turn", ["small", "medium"], 0, step) for step in range(3)]
    [('full',), ('small',), ('medium',)]
    >>> draw("sandwich", ["small", "medium"], 0, 5)
    ('full', 'small', 'medium')
    """
    if sample == TURN:
        every = (FULL, *names)
        return (every[step // stride % len(every)],)
    rng = np.random.default_rng([seed, step])
    if sample == SANDWICH:
        narrowest, *between = names
        drawn = [between[rng.integers(len(between))]] if between else []
        return (FULL, narrowest, *drawn)
    assert isinstance(sample, Mapping)
    odds = np.array([sample.get(name, 0.0) for name in (FULL, *names)])
    return ((FULL, *names)[rng.choice(len(odds), p=odds / odds.sum())],)


def draws(sample: Sample, names: Sequence[str]) -> list[tuple[str, ...]]:
    """All that `draw` may give, whatever the step.

    Example:
    >>> draws("turn", ["small", "medium"])
    [('full',), ('small',), ('medium',)]
    """
    if sample != SANDWICH:
        return [(name,) for name in (FULL, *names)]
    narrowest, *between = names
    return [(FULL, narrowest, *rest) for rest in [[name] for name in between] or [[]]]
