"""Makes configs say what pruning leaves: which numbers do is asked of the class.

A KerasHub backbone, or a block such as `Block(ff_dim=48)`, is saved by the numbers that
its constructor takes. Here such a layer is made again, without values, with one number
of its config changed, and the sizes of its variables are compared. So the numbers are
found that make what pruning leaves. Then the layer gets the attributes that its
constructor would have set: it becomes what its config makes.
"""

import contextlib
import dataclasses
import itertools
import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np

from keras_idea._groups.cut import Cut
from keras_idea._groups.find_channels import followed, has_code
from keras_idea._groups.follow import called_in
from keras_idea._groups.kinds import CHANNELS, Group
from keras_idea._keras.around import layers_around
from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.channels import tell_shapes
from keras_idea._keras.layers import has_call, student_of, sublayers, walk
from keras_idea._keras.models import Functional, made_of_tensors
from keras_idea._keras.symbolic import Given, call_like
from keras_idea._keras.variables import as_never_made, shaped, without_values
from keras_idea._layers.ffn import FFNLayer
from keras_idea._signals import held_back
from keras_idea.errors import ArgumentError
from keras_idea.hub.families import check_family, is_backbone, is_task
from keras_idea.hub.rebuild import patch_get_config, with_numbers

#: (Place of a variable in a layer, axis) -> its size.
Sizes: TypeAlias = dict[tuple[int, int], int]
#: A place in a config: keys of dicts and indices of lists, from the outside.
Path: TypeAlias = tuple[Any, ...]
#: A place in a config, and the number that it gets.
Change: TypeAlias = tuple[Path, int]

_MOST_TRIALS = 40  # of two or three numbers at once
_MOST_KEPT = 200  # configs of one class


class Stuck(NamedTuple):
    """A layer whose config cannot say what is wanted, and why."""

    layer: keras.layers.Layer
    why: str


@dataclasses.dataclass(frozen=True)
class Made:
    """What a class makes of a config.

    Attributes:
        sizes: of its variables.
        settings: list of the type and the plain attributes of each layer in it.
        why: str, why its sizes are not known; "" if they are.
        refused: bool, whether the class makes nothing of the config.
    """

    sizes: Sizes = dataclasses.field(default_factory=dict)
    settings: list[tuple[type, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )
    why: str = ""
    refused: bool = False


# Class -> a config as text -> what it makes.
_MADE: weakref.WeakKeyDictionary[type, dict[str, Made]] = weakref.WeakKeyDictionary()


def set_configs(
    model: keras.layers.Layer,
    variables: Iterable[keras.Variable],
    units: Iterable[tuple[int, int]] = (),
    undo: contextlib.ExitStack | None = None,
    hub_only: bool = False,
) -> list[Stuck]:
    """Sets the numbers in configs that make the shapes which variables have now.

    Args:
        model: keras.layers.Layer that holds them.
        variables: those that have another shape than before.
        units: how many units groups had, and have: what to try first.
        undo: ExitStack that puts all back when it is closed; None: it stays.
        hub_only: bool. Whether to leave out the configs of other classes.

    Returns:
        The layers whose configs cannot say it; they are unchanged.
    """
    changed, undo = set(map(id, variables)), undo or contextlib.ExitStack()
    todo = [h for h in _holders(model, changed) if is_backbone(h) or not hub_only]
    calls = {} if all(map(is_backbone, todo)) else called_in(model)
    stuck = []
    while todo:
        layer = todo.pop(0)
        search = _Search(layer, calls.get(layer), changed, units)
        if search.before.refused and not is_backbone(layer):
            # Keras reports that itself when it saves or loads, at any width.
            todo += [h for part in sublayers(layer) for h in _holders(part, changed)]
        elif search.why:
            stuck.append(Stuck(layer, search.why))
        elif search.changes:
            with contextlib.ExitStack() as undone:
                _become(layer, search, undone)
                if search.ask(_config_of(layer)).sizes == search.wanted:
                    undo.push(undone.pop_all())
                    continue
            names = " and ".join(map(_name, search.changes))
            stuck.append(Stuck(layer, f"has a {names} that cannot be set"))
    return stuck


@held_back()  # because the model says for a moment that it is narrower
def check_configs(
    model: keras.layers.Layer, targets: Sequence[tuple[Any, int]], hub_only: bool
) -> None:
    """Rejects numbers of units that the config of a KerasHub backbone cannot say.

    Warns of other layers, and of what is around the model. Nothing changes.

    Args:
        model: keras.layers.Layer.
        targets: list of (`FFN`, units that it is to have).
        hub_only: bool. Whether to leave out the configs of other classes.
    """
    units = [(ffn.hidden_dim, count) for ffn, count in targets]
    cuts = [
        [*ffn.held_cuts(), *(ffn.state.cuts() if ffn.holds_state else [])]
        for ffn, _ in targets
    ]
    held = [layer for ffn, _ in targets for layer in ffn.layers]
    for outer in (model, *layers_around(model, held)):
        with contextlib.ExitStack() as undo:
            groups = [(ffn.weights, count) for ffn, count in targets]
            variables = undo.enter_context(as_if(model, groups, cuts))
            stuck = set_configs(outer, variables, units, undo, hub_only)
            inside = list(_holders(outer, set(map(id, variables))))
        for backbone in filter(is_backbone, inside):
            check_family(backbone)
        for layer, why in stuck:
            if outer is model and is_backbone(layer):
                raise ArgumentError(
                    f"The config of {type(layer).__name__} '{layer.name}' {why}. Once "
                    "narrow, it could be neither saved nor compacted. Keep what its "
                    "config can hold."
                )
        warn_of_stuck(stuck)


def config_holds(model: keras.layers.Layer, groups: Sequence[Group]) -> dict[int, str]:
    """Why the configs of KerasHub models in a model, or around it, hold no group.

    Asks each for twice as many units of all groups in it. Returns the reasons by the
    `id` of a group; configs hold the number of all others.
    """
    held = [layer for group in groups for layer in group.layers]
    units = [(group.hidden_dim, 2 * group.hidden_dim) for group in groups]
    double = [(group, 2 * group.hidden_dim) for group in groups]
    own = [{id(cut.variable) for cut in group.held_cuts()} for group in groups]
    reasons: dict[int, str] = {}
    every = [p for o in (model, *layers_around(model, held)) for p in walk(o)]
    hub = [part for part in every if is_backbone(part) or is_task(part)]
    with as_if(model, double) if hub else contextlib.nullcontext():
        for layer in hub:
            backbone = layer.backbone if is_task(layer) else layer
            search = _Search(backbone, None, set().union(*own), units)
            if not search.begun:
                continue  # `check_configs` says why
            for group, variables in zip(groups, own, strict=True):
                inside = not variables.isdisjoint(map(id, layer.variables))
                if inside and not variables <= search.held:
                    why = search.why or "does not hold its number"
                    reasons[id(group)] = f"the config of {type(layer).__name__} {why}"
    return reasons


def numbers_of(
    layer: keras.layers.Layer, groups: Sequence[Group]
) -> Callable[[int], dict[Path, int]]:
    """Finds the numbers in a layer's config that say how many units groups have.

    Args:
        layer: keras.layers.Layer, made of its config when it was constructed.
        groups: list of groups in it, all with the same number of units.

    Returns:
        A function of the number of units: what to set in the config, for
        `with_numbers`.

    Raises:
        ArgumentError: If no numbers do.
    """
    count = groups[0].hidden_dim
    with as_if(layer, [(group, 2 * count) for group in groups]) as variables:
        search = _Search(layer, None, set(map(id, variables)), [(count, 2 * count)])
    if search.why:
        raise ArgumentError(f"The config of {type(layer).__name__} {search.why}.")
    now = dict(_numbers(_config_of(layer)))
    steps = {p: (n, n - (now[p] or n)) for p, n in search.changes.items()}

    def numbers(units: int) -> dict[Path, int]:
        more = units - 2 * count
        return {p: n + step * more // count for p, (n, step) in steps.items()}

    return numbers


def warn_of_stuck(stuck: Iterable[Stuck]) -> None:
    """Warns of layers that Keras saves narrow, and could not load so."""
    for layer, why in stuck:
        warn_user(
            f"The config of {type(layer).__name__} '{layer.name}' {why}. A file of the "
            "whole narrow model (.keras) could not be loaded. Give the layer an "
            "argument for its number of neurons, heads or channels, which `get_config` "
            "returns, or prune `keras_idea.as_functional(model)`."
        )


@contextlib.contextmanager
def as_if(
    model: keras.layers.Layer,
    targets: Sequence[tuple[Group, int]],
    cuts: Sequence[Sequence[Cut]] | None = None,
) -> Iterator[list[keras.Variable]]:
    """A scope in which a model says that groups have so many units; its values stay.

    Yields the variables whose shapes are others. `cuts`: those of each group.
    """
    with contextlib.ExitStack() as scopes:
        code = any(group.kind == CHANNELS for group, _ in targets) and has_code(model)
        if code:
            scopes.callback(_tell_shapes, model)
        variables = []
        for place, (group, count) in enumerate(targets):
            # Before the shapes, so that layers are told once those are as before.
            scopes.callback(group.set_hidden_dim, group.hidden_dim)
            for cut in cuts[place] if cuts else group.held_cuts():
                shape = cut.shape(count)
                if count <= cut.neurons:
                    scopes.callback(cut.narrow_labels(np.arange(count)))
                scopes.enter_context(shaped(cut.variable, shape))
                variables.append(cut.variable)
            group.set_hidden_dim(count)
        if code:
            _tell_shapes(model)
        yield variables


def _tell_shapes(model: keras.layers.Layer) -> None:
    tell_shapes(student_of(model), followed(model))


def _holders(layer: Any, changed: set[int]) -> Iterator[keras.layers.Layer]:
    """The outermost layers, made of a config of their own, that hold what changed.

    Keras's own layers follow their variables, and so do the FFNs of this package.
    """
    layer = student_of(layer)
    if isinstance(layer, FFNLayer) or changed.isdisjoint(map(id, layer.variables)):
        return
    by_parts = type(layer).__module__.startswith("keras.") or is_task(layer)
    # Keras saves a functional model of a class of its own by its graph.
    by_parts |= isinstance(layer, Functional) and made_of_tensors(type(layer))
    if is_backbone(layer) or not by_parts:
        yield layer
    if not is_backbone(layer) and (by_parts or not has_call(layer)):
        for part in sublayers(layer):  # models without a call are saved each by itself
            yield from _holders(part, changed)


class _Search:
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
    ) -> None:
        self._layer, self._given, self._units = layer, given, list(dict.fromkeys(units))
        self._variables, self.wanted = layer.variables, _sizes(layer)
        self.changes = dict[Path, int]()
        self._config = _config_of(layer)
        self.before = self.after = self._with({})
        same = [p for p in self.wanted if id(self._variables[p[0]]) not in changed]
        sizes, self.why = self.before.sizes, self.before.why
        if not self.why and (
            sizes.keys() != self.wanted.keys()
            or any(sizes[place] != self.wanted[place] for place in same)
        ):
            self.why = "makes other variables"
        self.begun = not self.why
        while not self.why and self.after.sizes != self.wanted:
            self.changes |= self._step()
            self.after = self._with({})
        left = {place for place, _ in _moved(self.after.sizes, self.wanted)}
        self.held = {id(v) for i, v in enumerate(self._variables) if i not in left}

    def ask(self, config: Any) -> Made:
        """What the layer's class makes of a config; the same is asked once."""
        known = _MADE.setdefault(type(self._layer), {})
        built = None if self._given else getattr(self._layer, _BUILT, None)
        text = _text([config, self._given, built])
        if text is None or text not in known:
            made = _make(self._layer, config, self._given)
            if text is None:
                return made
            known[text] = made
            if len(known) > _MOST_KEPT:
                known.pop(next(iter(known)))
        return known[text]

    def _with(self, more: Mapping[Path, int]) -> Made:
        return self.ask(with_numbers(self._config, {**self.changes, **more}))

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
            if right or made.why:
                opened.append((path, number))
                fixed += [self.wanted[place] for place in wrong]
            if right:
                why = why or self._why_not(path, number, made)
        # As a head's size, which a config may leave to be the features by the heads.
        unset = [path for path, n in _numbers(self._config) if n is None]
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
        numbers = [(p, n) for p, n in _numbers(self._config) if n is not None]
        for rank, pairs in enumerate((self._units, axes)):
            for (path, value), (old, new) in itertools.product(numbers, pairs):
                related = value > 1 and (value % old == 0 or old % value == 0)
                if path in self.changes or old == new or value * new % old:
                    continue
                if value == old or related:
                    change = path, value * new // old
                    likely = rank if value == old else 2
                    found[change] = min(likely, found.get(change, likely))
        return [(c, found[c] < 2) for c in sorted(found, key=found.__getitem__)]

    def _judge(self, made: Made) -> tuple[list, list]:
        """The axes that move to their wanted sizes, and those that move to others."""
        moved = _moved(self.after.sizes, made.sizes)
        if made.why or made.sizes.keys() != self.wanted.keys():
            return [], moved
        right = [place for place in moved if made.sizes[place] == self.wanted[place]]
        return right, [place for place in moved if place not in right]

    def _why_not(self, path: Path, number: int, made: Made) -> str:
        """Why one number, which moves some axes to their wanted sizes, does not do."""
        needs = dict[Any, set[int]]()
        for variable, axis in _moved(self.after.sizes, made.sizes):
            alike = axis, _shape(self.after.sizes, variable)
            needs.setdefault(alike, set()).add(self.wanted[variable, axis])
        for sizes in needs.values():
            if len(sizes) > 1:
                return (
                    f"holds one {_name(path)}, but its layers would now need sizes of "
                    f"{' and '.join(map(str, sorted(sizes)))}: keep as many in each"
                )
        _, wrong = self._judge(made)
        said = f"makes {self._shape(wrong[0][0], made)}, with {_name(path)}={number}"
        numbers = {p: n for p, n in _numbers(self._config) if n is not None and n > 1}
        old = numbers.pop(path)
        for other, value in numbers.items():  # by the same share, as features and heads
            if value * number % old:
                continue
            both = {path: number, other: value * number // old}
            found = self._with(both).sizes
            if all(found.get(place) == self.wanted[place] for place in wrong):
                return f"{said} (it would need {_name(other)}={both[other]} too)"
        return said

    def _shape(self, place: int, made: Made) -> str:
        wanted, found = _shape(self.wanted, place), _shape(made.sizes, place)
        return f"'{self._variables[place].path}' of shape {found}, not {wanted}"


def _make(layer: Any, config: Any, given: Given | None) -> Made:
    made = Made(why="cannot be read", refused=True)
    if config is None:
        return made
    # Values cost most, and few layers look at theirs when they are built.
    for scope in (without_values, contextlib.nullcontext):
        with as_never_made(), scope():
            try:
                new = type(layer).from_config(with_numbers(config, {}))
            except Exception as error:
                made = Made(why=f"is refused by its class ({error})", refused=True)
                continue
            try:
                if has_call(layer) and not is_backbone(layer):
                    call_like(new, layer, given)
            except Exception as error:
                made = Made(why=f"makes a layer that cannot be called ({error})")
                continue
            settings = [(type(part), _settings(part)) for part in walk(new)]
            return Made(_sizes(new), settings)
    return made


def _config_of(layer: Any) -> Any:
    """A layer's config; None if it has none."""
    if is_backbone(layer):
        patch_get_config(layer)
    with contextlib.suppress(Exception):
        return with_numbers(layer.get_config(), {})
    return None


def _sizes(layer: keras.layers.Layer) -> Sizes:
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


def _become(layer: Any, search: _Search, undo: contextlib.ExitStack) -> None:
    """Sets on a layer, and on those in it, what the new config would have set."""
    made = zip(search.before.settings, search.after.settings, strict=False)
    for part, ((kind, old), (_, new)) in zip(walk(layer), made, strict=False):
        if type(part) is kind:
            for name in old.keys() & new.keys():
                if old[name] != new[name]:
                    _set(part, name, old[name], new[name], undo)


def _set(part: Any, name: str, old: Any, new: Any, undo: contextlib.ExitStack) -> None:
    held = vars(part)
    if name == _NOTED:
        held, name = vars(held[name]), "config"
    value = held[name]
    if isinstance(value, dict):  # in place, because Keras tracks it
        undo.callback(value.update, dict(value))
        value.update({key: n for key, n in new.items() if old.get(key) != n})
    elif isinstance(value, list):
        undo.callback(value.__setitem__, slice(None), list(value))
        value[:] = new
    else:
        undo.callback(held.__setitem__, name, value)
        held[name] = new


#: What a layer was built for.
_BUILT = "_build_shapes_dict"
#: What a constructor was given, of a class without a `get_config` of its own.
_NOTED = "_auto_config"


def _settings(layer: Any) -> dict[str, Any]:
    """The plain values among a layer's attributes."""
    held = dict(vars(layer))
    held[_NOTED] = getattr(held.get(_NOTED), "config", None)
    return {name: with_numbers(v, {}) for name, v in held.items() if _is_plain(v)}


def _is_plain(value: Any) -> bool:
    kinds = (bool, int, float, str, type(None), np.generic)
    return all(isinstance(leaf, kinds) for leaf in keras.tree.flatten(value))


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


def _numbers(config: Any, path: Path = ()) -> Iterator[tuple[Path, int | None]]:
    """The whole numbers in a config, and what is None, each with its place."""
    if isinstance(config, (dict, list, tuple)):
        named = config.items() if isinstance(config, dict) else enumerate(config)
        for key, part in named:
            yield from _numbers(part, (*path, key))
    elif config is None or (type(config) is int and config > 0):
        yield path, config


def _together(
    opened: Sequence[Change], free: Sequence[Change]
) -> Iterator[dict[Path, int]]:
    """Two or three numbers at once, at most one of which was None."""
    for count in (2, 3):
        for some in itertools.combinations([*opened, *free], count):
            if len(dict(some)) == count and sum(map(free.__contains__, some)) < 2:
                yield dict(some)


def _name(path: Path) -> str:
    """A place in a config, as a reader would write it."""
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path)[1:]
