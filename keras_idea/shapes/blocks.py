"""The blocks of a model: found, left out for a pass, taken out for good."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.rebuild import rebuild_backbone
from keras_idea.hub.same_function import check_same_function
from keras_idea.keras_private.layers import (
    first_argument,
    own_settings,
    sublayers,
    walk,
)
from keras_idea.keras_private.models import Functional, calls_in, instead
from keras_idea.keras_private.variables import copy_training, without_values
from keras_idea.surgery.copying import rebuilt

# What KerasHub's backbones call the number of their blocks.
_DEPTH = "num_layers"


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a model, one behind the other.

    `model` is the functional model, `Sequential` or KerasHub backbone that has them.
    """

    model: keras.Model
    layers: list[keras.layers.Layer]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.layers)

    def patterns(self, count: int) -> tuple[list[Any], list[Any]]:
        """What kind each block is of, and each of the model with so many blocks.

        In some families the kind of a block follows from its place: every second one of
        Gemma 2 looks at a window only. Kinds can be compared, and no more.
        """
        if not is_backbone(self.model) or _by_block(self.model, len(self)):
            return [0] * len(self), [0] * count
        # Both of new models: layers that a file was loaded into know of it.
        return self._kinds(len(self)), self._kinds(count)

    def _kinds(self, count: int) -> list[Any]:
        with without_values():
            config = _config_of_blocks(self.model, len(self), range(count))
            copy = rebuild_backbone(self.model, config)
        return [_kind(b) for b in find_blocks(copy).layers] if count else []


def find_blocks(
    model: keras.Model, advice: str = "Leave 'blocks' out of `targets`."
) -> Blocks:
    """Finds the blocks of a model that can be taken out, in its order.

    Those of a KerasHub task or backbone, if there is one stack of them; of a functional
    model or `Sequential` the layers of one class, each of which holds other layers and
    returns what has the shape of its input. Refuses other models, with the advice.
    """
    backbone = model.backbone if is_task(model) else model
    if is_backbone(backbone):
        count = getattr(backbone, _DEPTH, None)
        dense = (keras.layers.Dense, keras.layers.EinsumDense)
        blocks = [
            layer
            for layer in backbone.layers
            if sublayers(layer) and any(isinstance(part, dense) for part in walk(layer))
        ]
        if count != len(blocks) or len({type(block) for block in blocks}) != 1:
            raise ArgumentError(
                f"The blocks of {type(backbone).__name__} cannot be taken out: its "
                f"config has {_DEPTH}={count}, and {len(blocks)} of its layers hold "
                f"Dense layers. {advice}"
            )
        return Blocks(backbone, blocks)
    if not isinstance(model, (Functional, keras.Sequential)):
        raise ArgumentError(
            f"The blocks of '{model.name}' cannot be taken out: "
            f"{type(model).__name__} is neither functional nor Sequential nor a "
            "KerasHub task or backbone, so that nothing says how they follow one "
            f"another. {advice}"
        )
    several = _skippable(model)
    most = Counter(type(layer) for layer in several).most_common(1)
    if not most or most[0][1] < 2:
        raise ArgumentError(
            f"Model '{model.name}' has no blocks to take out: no two of its layers are "
            "of one class, hold other layers, and return what has the shape of their "
            f"input. {advice}"
        )
    return Blocks(model, [layer for layer in several if type(layer) is most[0][0]])


@contextlib.contextmanager
def without(
    blocks: Sequence[keras.layers.Layer],
    alive: Callable[[keras.layers.Layer], Any] | None = None,
) -> Iterator[None]:
    """A scope in which blocks return what they are given.

    `alive` gives a boolean tensor for a block: whether it does its work after all.
    """
    with contextlib.ExitStack() as changes:
        for block in blocks:
            call = _passing(block.call, alive and alive(block))
            changes.enter_context(instead(block, "call", call))
        yield


def take_out(model: keras.Model, kept: Sequence[int]) -> keras.Model:
    """A new model, of the same class, of the blocks of some (ascending) numbers only.

    Refuses one whose rest has other variables, or that computes something else than the
    old one without the blocks.
    """
    blocks = find_blocks(model)
    gone = [b for place, b in enumerate(blocks.layers) if place not in {*kept}]
    config = {}
    if is_backbone(blocks.model):
        config = _config_of_blocks(blocks.model, len(blocks), kept)
    copy = rebuilt(model, config, gone)
    given_up = {id(variable) for block in gone for variable in block.variables}
    stay = [v for v in model.variables if id(v) not in given_up]
    for old, new in zip(stay, copy.variables, strict=True):
        if (old.shape, old.name) != (new.shape, new.name):
            raise ArgumentError(
                f"'{model.name}' without blocks has other variables than what is left "
                f"of it: {new.path} {new.shape} in place of {old.path} {old.shape}."
            )
        copy_training(old, new)
        new.assign(old.value)
    with without(gone):
        check_same_function(model, copy)
    return copy


def _passing(call: Callable[..., Any], alive: Any) -> Callable[..., Any]:
    def passing(*args: Any, **kwargs: Any) -> Any:
        inputs = first_argument(call, args, kwargs)
        if alive is None:
            return inputs
        return keras.ops.where(alive, call(*args, **kwargs), inputs)

    return passing


def _config_of_blocks(
    backbone: keras.Model, depth: int, kept: Sequence[int]
) -> dict[str, Any]:
    """What the config of a backbone says of some of its blocks."""
    lists = _by_block(backbone, depth)
    some = {name: [values[i] for i in kept] for name, values in lists.items()}
    return {**some, _DEPTH: len(kept)}


def _by_block(backbone: keras.Model, depth: int) -> dict[str, Any]:
    """What a config lists block by block."""
    config = backbone.get_config()
    listed = {k: v for k, v in config.items() if isinstance(v, (list, tuple))}
    return {name: values for name, values in listed.items() if len(values) == depth}


def _kind(block: keras.layers.Layer) -> Any:
    # Not by its config: KerasHub's Llama block (0.32) fails to give one.
    return [(type(part), own_settings(part)) for part in walk(block)]


def _skippable(model: keras.Model) -> list[keras.layers.Layer]:
    """Layers that hold others, called once, that keep their input's shape."""
    calls = calls_in(model)
    times = Counter(id(layer) for layer, _, _ in calls)
    return [
        layer
        for layer, given, returned in calls
        if times[id(layer)] == len(returned) == 1
        and isinstance(layer, keras.layers.Layer)
        and sublayers(layer)
        and given[0].shape == returned[0].shape
    ]


def most_important(
    importance: np.ndarray, kinds: Sequence[Any], places: Sequence[Any]
) -> list[int]:
    """The blocks of the greatest importance together that fit a narrower model.

    Of all ascending choices whose kinds are those of the places, one after another, the
    one of the greatest sum. Refuses an importance that is not finite.

    Example:
    >>> most_important(np.array([1.0, 3.0, 0.5, 2.0]), "abab", "ab")
    [0, 1]
    """
    blocks, wanted = len(kinds), len(places)
    if not np.isfinite(importance).all():
        raise ArgumentError(
            "The importance of some blocks is NaN or infinite. Check the calibration "
            f"data and the weights. Received: {importance}."
        )
    # best[i, j]: of the first i blocks j stay, for the first j places.
    best = np.full((blocks + 1, wanted + 1), -np.inf)
    best[:, 0] = 0
    for i in range(1, blocks + 1):
        for j in range(1, min(i, wanted) + 1):
            fits = kinds[i - 1] == places[j - 1]
            taken = best[i - 1, j - 1] + importance[i - 1] if fits else -np.inf
            best[i, j] = max(best[i - 1, j], taken)
    if not np.isfinite(best[blocks, wanted]):
        raise ArgumentError(
            f"No {wanted} of the {blocks} blocks can stay: their kinds follow one "
            "another in a pattern that those of a model with so many have not. Give "
            "another number."
        )
    kept, j = [], wanted
    for i in range(blocks, 0, -1):
        if j and best[i, j] > best[i - 1, j]:
            kept.append(i - 1)
            j -= 1
    return kept[::-1]


def fits(kinds: Sequence[Any], places: Sequence[Any]) -> bool:
    """Whether the places can be filled from the kinds, in their order."""
    left = iter(kinds)
    return all(any(kind == place for kind in left) for place in places)
