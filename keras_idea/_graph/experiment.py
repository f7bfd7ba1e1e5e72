"""Which numbers of a config make given shapes: its class is asked by making it again.

A layer is made without values, with one number of its config changed, and the sizes of
its variables are compared. What a class makes of a config is asked once.
"""

import contextlib
import dataclasses
import itertools
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._keras.layers import BUILT, NOTED, has_call, walk
from keras_idea._keras.symbolic import Given, call_like
from keras_idea._keras.variables import as_never_made, without_values
from keras_idea.hub.families import is_backbone
from keras_idea.hub.rebuild import patch_get_config, with_numbers

#: (Place of a variable in a layer, axis) -> its size.
Sizes: TypeAlias = dict[tuple[int, int], int]
#: A place in a config: keys of dicts and indices of lists, from the outside.
Path: TypeAlias = tuple[Any, ...]
#: A place in a config, and the number that it gets.
Change: TypeAlias = tuple[Path, int]

_MOST_TRIALS = 40  # of two or three numbers at once
_MOST_KEPT = 40  # configs of one class


@dataclasses.dataclass(frozen=True)
class Made:
    """What a class makes of a config.

    Attributes:
        sizes: of its variables.
        settings: list of the type and the plain attributes of each layer in it.
        why: str, why its sizes are not known; "" if they are.
    """

    sizes: Sizes = dataclasses.field(default_factory=dict)
    settings: list[tuple[type, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )
    why: str = ""


# Class -> a config as text -> what it makes.
_MADE: weakref.WeakKeyDictionary[type, dict[str, Made]] = weakref.WeakKeyDictionary()


class Search:
    """The numbers of a layer's config that make the sizes its variables have now.

    Attributes:
        changes: dict, place in the config -> the number that it needs.
        why: str, why no numbers do; "" if these do.
        begun: bool, whether the config makes the sizes of what did not change.
        held: set of the `id`s of the variables that have their sizes with them.
        before, after: `Made` of the config, and with the changes.
    """

    def __init__(
        self,
        layer: Any,
        given: Given | None,
        changed: set[int],
        units: Iterable[tuple[int, int]],
        before: Made | None = None,
    ) -> None:
        self._layer, self._given, self._units = layer, given, list(dict.fromkeys(units))
        self._variables, self.wanted = layer.variables, sizes_of(layer)
        self.changes = dict[Path, int]()
        self._config = config_of(layer)
        self.before = self.after = before or self._with({})
        same = [p for p in self.wanted if id(self._variables[p[0]]) not in changed]
        sizes, self.why = self.before.sizes, ""
        if sizes.keys() != self.wanted.keys() or any(
            sizes[place] != self.wanted[place] for place in same
        ):
            self.why = self.before.why or "makes other variables"
        self.begun = not self.why
        while not self.why and self.after.sizes != self.wanted:
            self.changes |= self._step()
            self.after = self._with({})
        left = {place for place, _ in _moved(self.after.sizes, self.wanted)}
        self.held = {id(v) for i, v in enumerate(self._variables) if i not in left}

    def _ask(self, config: Any) -> Made:
        """What the layer's class makes of a config; the same is asked once."""
        known = _MADE.setdefault(type(self._layer), {})
        built = None if self._given else getattr(self._layer, BUILT, None)
        text = _text([config, self._given, built])
        if text is None or text not in known:
            made = _make(self._layer, config, self._given)
            if text is None:
                return made
            known[text] = made
            if len(known) > _MOST_KEPT:
                known.pop(next(iter(known)))
        return known[text]

    def apply(self, undo: contextlib.ExitStack) -> bool:
        """Sets on the layer what its constructor would set with the changes.

        `undo` gets what puts it back. Returns whether its config then makes the sizes.
        """
        noted = getattr(self._layer, NOTED, None)
        if noted is not None:  # of a model, Keras 3.15 notes only the defaults
            undo.callback(setattr, noted, "config", noted.config)
            noted.config = with_numbers(noted.config, self.changes)
        made = zip(self.before.settings, self.after.settings, strict=False)
        for part, ((kind, old), (_, new)) in zip(walk(self._layer), made, strict=False):
            if type(part) is kind:
                for name in old.keys() & new.keys():
                    if old[name] != new[name]:
                        _set(part, name, old[name], new[name], undo)
        return self._ask(config_of(self._layer)).sizes == self.wanted

    def _with(self, more: Mapping[Path, int]) -> Made:
        return self._ask(with_numbers(self._config, {**self.changes, **more}))

    def _step(self) -> dict[Path, int]:
        """More numbers, which move axes to the wanted sizes, and no others.

        Empty if there are none; then it says why.
        """
        opened, fixed, why = list[Change](), list[int](), ""
        for (path, number), equal in self._candidates():
            if why and not equal:
                break  # the numbers that these axes follow are known
            made = self._with({path: number})
            right, wrong = self._judge(made)
            if right and not wrong:
                return {path: number}
            if any(self.before.sizes.get(p) != self.after.sizes.get(p) for p in wrong):
                continue  # it moves what another number has moved
            if right or made.why:
                opened.append((path, number))
                fixed += [self.wanted[place] for place in wrong]
            if right:
                why = why or self._why_not(path, number, made, wrong)
        # As a head's size, which a config may leave to be the features by the heads.
        unset = [path for path, n in numbers_in(self._config) if n is None]
        free = list(itertools.product(unset, dict.fromkeys(fixed)))
        for trial in itertools.islice(_together(opened, free), _MOST_TRIALS):
            right, wrong = self._judge(self._with(trial))
            if right and not wrong:
                return trial
        (place, _), *_ = _moved(self.after.sizes, self.wanted)
        wrong_shape = self._shape(place, self.after)
        self.why = why or f"makes {wrong_shape}, whatever number in it is changed"
        return {}

    def _candidates(self) -> list[tuple[Change, bool]]:
        """What numbers could become, and whether they equal a size: those come first.

        A number may be that of the units, the size of an axis, or a multiple or a part
        of one.
        """
        now, wanted, found = self.after.sizes, self.wanted, dict[Change, int]()
        axes = list(dict.fromkeys((now[p], wanted[p]) for p in _moved(now, wanted)))
        numbers = [(p, n) for p, n in numbers_in(self._config) if n is not None]
        for rank, pairs in enumerate((self._units, axes)):
            for (path, value), (old, new) in itertools.product(numbers, pairs):
                related = value > 1 and (value % old == 0 or old % value == 0)
                if path in self.changes or old == new or value * new % old:
                    continue
                if value == old or related:
                    change = path, value * new // old
                    likely = rank if value == old else 2
                    found[change] = min(likely, found.get(change, likely))
        # Heads may be as many as the features of one: "dim" and "size" come after.
        sized = {c: any(w in name_of(c[0]) for w in ("dim", "size")) for c in found}
        order = sorted(found, key=lambda change: (found[change], sized[change]))
        return [(change, found[change] < 2) for change in order]

    def _judge(self, made: Made) -> tuple[list, list]:
        """The axes that move to their wanted sizes, and those that move to others."""
        moved = _moved(self.after.sizes, made.sizes)
        if made.why or made.sizes.keys() != self.wanted.keys():
            return [], moved
        right = [place for place in moved if made.sizes[place] == self.wanted[place]]
        return right, [place for place in moved if place not in right]

    def _why_not(self, path: Path, number: int, made: Made, wrong: list) -> str:
        """Why one number, which also moves axes to wrong sizes, does not do."""
        needs = dict[Any, set[int]]()
        for variable, axis in _moved(self.after.sizes, made.sizes):
            alike = axis, _shape(self.after.sizes, variable)
            needs.setdefault(alike, set()).add(self.wanted[variable, axis])
        for sizes in needs.values():
            if len(sizes) > 1:
                return (
                    f"holds one {name_of(path)}, but its layers would need sizes of "
                    f"{' and '.join(map(str, sorted(sizes)))}: keep as many in each"
                )
        said = f"makes {self._shape(wrong[0][0], made)}, with {name_of(path)}={number}"
        numbers = {p: n for p, n in numbers_in(self._config) if n is not None and n > 1}
        old = numbers.pop(path)
        for other, value in numbers.items():  # by the same share, as features and heads
            both = {path: number, other: value * number // old}
            if value * number % old == 0:
                found = self._with(both).sizes
                if all(found.get(place) == self.wanted[place] for place in wrong):
                    return f"{said} (it would need {name_of(other)}={both[other]} too)"
        return said

    def _shape(self, place: int, made: Made) -> str:
        wanted, found = _shape(self.wanted, place), _shape(made.sizes, place)
        return f"'{self._variables[place].path}' of shape {found}, not {wanted}"


def _make(layer: Any, config: Any, given: Given | None) -> Made:
    made = Made(why="cannot be read")
    if config is None:
        return made
    # Values cost most, and few layers look at theirs when they are built.
    for scope in (without_values, contextlib.nullcontext):
        with as_never_made(), scope():
            try:
                new = type(layer).from_config(with_numbers(config, {}))
            except Exception as error:
                made = Made(why=f"is refused by its class ({error})")
                continue
            why = ""
            try:
                if has_call(layer) and not is_backbone(layer):
                    call_like(new, layer, given)
            except Exception as error:  # it may be built for what it was called on
                why = f"makes a layer that cannot be called ({error})"
            settings = [(type(part), _settings(part)) for part in walk(new)]
            made = Made(sizes_of(new), settings, why)
            if not why:
                break
    return made


def config_of(layer: Any) -> Any:
    """A layer's config; None if it has none."""
    if is_backbone(layer):
        patch_get_config(layer)
    with contextlib.suppress(Exception):
        return with_numbers(layer.get_config(), {})
    return None


def sizes_of(layer: keras.layers.Layer) -> Sizes:
    """The sizes of a layer's variables."""
    return {
        (place, axis): size
        for place, variable in enumerate(layer.variables)
        for axis, size in enumerate((*variable.shape, 0))  # a scalar counts too
    }


def _shape(sizes: Sizes, place: int) -> tuple[int, ...]:
    return tuple(size for (variable, _), size in sizes.items() if variable == place)[
        :-1
    ]


def _moved(some: Sizes, others: Sizes) -> list[tuple[int, int]]:
    """The axes that differ in size, or that one of the two lacks."""
    return [p for p in {**some, **others} if some.get(p) != others.get(p)]


def _set(part: Any, name: str, old: Any, new: Any, undo: contextlib.ExitStack) -> None:
    held = vars(part)
    if name == NOTED:
        if held[name] is None:  # Keras notes nothing where an argument is an object
            return
        held, name = vars(held[name]), "config"
    value = held[name]
    if isinstance(new, dict):
        new = {**value, **{key: n for key, n in new.items() if old.get(key) != n}}
    undo.callback(held.__setitem__, name, value)
    held[name] = new


def _settings(layer: Any) -> dict[str, Any]:
    """The plain values among a layer's attributes."""
    held = dict(vars(layer))
    held[NOTED] = getattr(held.get(NOTED), "config", None)
    return {name: with_numbers(v, {}) for name, v in held.items() if _is_plain(v)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (dict, list, tuple)):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (bool, int, float, str, type(None), np.generic))


def _text(config: Any) -> str | None:
    """A config as text, without names, in which layers that are alike differ."""

    def plain(part: Any) -> Any:
        if isinstance(part, keras.KerasTensor):
            return [part.shape, part.dtype]
        raise TypeError(part)

    def nameless(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: nameless(v) for key, v in part.items() if key != "name"}
        return list(map(nameless, part)) if isinstance(part, (list, tuple)) else part

    with contextlib.suppress(TypeError, ValueError):  # it holds an object
        return json.dumps(nameless(config), sort_keys=True, default=plain)
    return None


def numbers_in(config: Any, path: Path = ()) -> Iterator[tuple[Path, int | None]]:
    """The whole numbers in a config, and what is None, each with its place."""
    if isinstance(config, (dict, list, tuple)):
        named = config.items() if isinstance(config, dict) else enumerate(config)
        for key, part in named:
            yield from numbers_in(part, (*path, key))
    elif config is None or (type(config) is int and config > 0):
        yield path, config


def _together(
    opened: Sequence[Change], free: Sequence[Change]
) -> Iterator[dict[Path, int]]:
    """Two or three numbers at once, at most one of which was None."""
    for more, count in ((0, 2), (1, 1), (0, 3), (1, 2)):
        for some in itertools.combinations(opened, count):
            for one in itertools.combinations(free, more):
                if len(trial := dict([*some, *one])) == count + more:
                    yield trial


def name_of(path: Path) -> str:
    """A place in a config, as a reader would write it."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path)[1:]
