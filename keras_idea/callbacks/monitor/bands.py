"""The heat maps of a model: one per layer, or one per kind if they are too many."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_idea.callbacks.monitor.neuron_lives import NeuronLives
from keras_idea.groups.kinds import KINDS
from keras_idea.validation import plural

#: Heat maps below one another that can still be read.
MOST_BANDS = 12

# Neurons of each layer that stand for it among all layers.
_SAMPLE = 512
_LONGEST_NAME = 60


@dataclasses.dataclass(frozen=True)
class Band:
    """One heat map: what it shows, in words and in levels, and its relative height."""

    title: str
    lives: NeuronLives
    height: float


def bands(layers: Sequence[NeuronLives]) -> list[Band]:
    """Returns a band for each layer, or for each kind if they are too many to be read.

    In a band for a kind, the neurons of all layers are sorted together. Up to 512
    neurons stand for each layer, evenly spaced in its own order.

    Example:
    >>> levels = np.ones((1, 8), "uint8")
    >>> layers = [NeuronLives(f"ffn_{i}", np.array([1]), levels) for i in range(30)]
    >>> [band.title for band in bands(layers[:2])]
    ['ffn_0: 8 neurons, sorted by pruning step', 'ffn_1: 8 neurons']
    >>> [band.title for band in bands(layers)]
    ['30 FFNs together: 240 neurons, sorted by pruning step']
    """
    if len(layers) <= MOST_BANDS:
        parts = [(_short(lives.layer), [lives]) for lives in layers]
    else:
        kinds = {kind: [x for x in layers if x.kind == kind] for kind in KINDS}
        parts = [
            (f"{plural(len(alike), KINDS[kind].holder)} together", alike)
            for kind, alike in kinds.items()
            if alike
        ]
    return [
        _band(name, alike, ", sorted by pruning step" if index == 0 else "")
        for index, (name, alike) in enumerate(parts)
    ]


def _band(name: str, layers: Sequence[NeuronLives], order: str) -> Band:
    kind = KINDS[layers[0].kind]
    units = sum(lives.levels.shape[1] for lives in layers)
    shown = layers[0] if len(layers) == 1 else _together(layers)
    return Band(f"{name}: {plural(units, kind.unit)}{order}", shown, kind.height)


def _together(layers: Sequence[NeuronLives]) -> NeuronLives:
    """A sample of the neurons of all layers, as if they were one."""
    steps = np.unique(np.concatenate([lives.steps for lives in layers]))
    levels = [
        lives.sorted_levels(min(_SAMPLE, lives.levels.shape[1]))[
            :, lives.reading_at(steps)
        ]
        for lives in layers
    ]
    return NeuronLives("", steps, np.concatenate(levels).T, layers[0].kind)


def _short(name: str) -> str:
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half:]}"
