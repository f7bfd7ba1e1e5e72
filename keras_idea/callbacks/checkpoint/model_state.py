"""All of a model that training changes: taken apart into arrays, and put back."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea import processes
from keras_idea.callbacks.checkpoint.accumulation import (
    accumulation_facts,
    carried_over,
)
from keras_idea.callbacks.checkpoint.files import piece_name
from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN, find_ffns, find_groups
from keras_idea.groups.kinds import KINDS, NEURONS
from keras_idea.keras_private.layers import is_built, student_of
from keras_idea.methods.probe import Probe
from keras_idea.step.pruner import own_variables
from keras_idea.step.replicas import scope_of
from keras_idea.surgery.checks import is_pruned
from keras_idea.surgery.narrow_in_place import narrow_whole
from keras_idea.surgery.own_config import warn_of_stuck
from keras_idea.surgery.probes import attach_probes, detach_probes


def state_arrays(model: keras.Model) -> list[tuple[str, Callable[[], np.ndarray]]]:
    """The variables of a model and of its optimizer, seeds and scores among them.

    Pairs of a name and a function that copies the array when called. A name is
    `model/<place>/<variable's name>`, `neurons/<place>/<name>` for an FFN whose layers
    do not store them, `KIND/...` for another group that was pruned, or
    `optimizer/<place>`. Places, because the numbers in Keras paths depend on what else
    the process has made. With several processes, each returns the pieces that only it
    writes, see `piece_name`. In `fit` on jax the model must be in sync.
    """

    def reader(value: Any) -> Callable[[], np.ndarray]:
        return lambda: np.asarray(keras.ops.convert_to_numpy(value))

    for ffn in [*find_ffns(model), *_pruned_others(model).values()]:
        ffn.update_state()
    if processes.count() == 1:
        return [(name, reader(variable.value)) for name, variable in _named(model)]
    return [
        (piece_name(name, start), reader(value))
        for name, variable in _named(model)
        for start, value in _own_pieces(variable)
    ]


def _own_pieces(variable: keras.Variable) -> Iterator[tuple[list[int], Any]]:
    """Of a jax array the parts that this process writes: each part has one writer."""
    for shard in variable.value.addressable_shards:
        if shard.replica_id == 0:
            yield [place.start or 0 for place in shard.index], shard.data


def state_facts(model: keras.Model) -> dict:
    """What must be known of a model besides its arrays, as JSON holds it.

    Of each FFN its width at first and now, and the probe of a pruning method; of each
    attention layer that was pruned its place and its heads at first and now; and the
    class of the optimizer, with how it accumulates gradients.
    """
    ffns = [
        {
            "full_dim": ffn.full_dim,
            "hidden_dim": ffn.hidden_dim,
            "probe": ffn.state.probe
            and keras.saving.serialize_keras_object(ffn.state.probe),
        }
        for ffn in find_ffns(model)
    ]
    others: dict[str, list[dict]] = {}
    for (kind, place), ffn in _pruned_others(model).items():
        sizes = {"full_dim": ffn.full_dim, "hidden_dim": ffn.hidden_dim}
        others.setdefault(kind, []).append({"place": place, **sizes})
    optimizer = getattr(model, "optimizer", None)
    facts = {"ffns": ffns, "optimizer": optimizer and type(optimizer).__name__}
    if optimizer is not None and optimizer.built:
        facts["accumulation"] = accumulation_facts(optimizer)
    return {**facts, **others}


def restore_state(
    model: keras.Model,
    facts: dict,
    shapes: Mapping[str, tuple[int, ...]],
    read: Callable[[str], np.ndarray],
    step: int | None = None,
) -> None:
    """Puts a model into the state that was saved, narrowing it first where it was.

    `facts` are those of `state_facts`, `shapes` those of all arrays that were saved, by
    the names that `read` takes, and `step` is the optimizer's, if it is known. If a
    step now has another number of batches, it stays the same step: see `accumulation`.
    Refuses another model, and one that is being pruned. A refused model may already be
    narrowed, but its values are unchanged.
    """
    _check_same_kind(model, facts)
    ffns, others = find_ffns(model), _saved_others(model, facts)
    groups = [*zip(ffns, facts["ffns"], strict=True), *others.values()]
    if is_pruned(model, find_groups(model)):
        raise ArgumentError(
            f"Model '{model.name}' is being pruned. End that with "
            "`callback.on_train_end()` before a checkpoint is restored."
        )
    widths = [
        (ffn, saved["hidden_dim"])
        for ffn, saved in groups
        if _was_as_wide(ffn, saved["full_dim"])  # else it is another model's: see below
    ]
    # Whichever neurons: what they hold is read below.
    stuck = narrow_whole(
        model,
        [(ffn, _first(ffn, width)) for ffn, width in widths if width < ffn.hidden_dim],
    )
    warn_of_stuck(stuck)
    _restore_probes(model, ffns, facts)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        with scope_of(model):
            optimizer.build(model.trainable_variables)
    named, other = _named(model, {key: ffn for key, (ffn, _) in others.items()}), None
    if optimizer is not None:
        known = facts.get("accumulation")
        other = carried_over(optimizer, known, shapes, read, step)
    if other is not None:
        named, shapes = other.match(named)
    _check_same_variables(named, shapes)
    for name, variable in named:
        variable.assign(read(name))
    for ffn, saved in groups:
        ffn.state.full_dim = saved["full_dim"]
    if other is not None:
        other.finish()


def _was_as_wide(ffn: FFN, full_dim: int) -> bool:
    """Whether an FFN was so wide at first, as far as is known."""
    unknown = ffn.state.full_dim is None
    return ffn.full_dim == full_dim or (unknown and ffn.hidden_dim < full_dim)


def _first(ffn: FFN, width: int) -> np.ndarray:
    return np.broadcast_to(np.arange(width), (*ffn.units_shape[:-1], width))


def _other_groups(model: keras.Model) -> dict[tuple[str, int], FFN]:
    """By kind and place, all groups of a model but its FFNs."""
    kinds = [kind for kind in KINDS if kind != NEURONS]
    return {
        (kind, place): group
        for kind in kinds
        for place, group in enumerate(find_groups(model, [kind]))
    }


def _pruned_others(model: keras.Model) -> dict[tuple[str, int], FFN]:
    """Those of `_other_groups` whose units were pruned or scored."""
    every = _other_groups(model)
    return {key: group for key, group in every.items() if group.held_state is not None}


def _saved_others(
    model: keras.Model, facts: dict
) -> dict[tuple[str, int], tuple[FFN, dict]]:
    """As `_pruned_others`, of those that a checkpoint tells of, with what it tells."""
    saved = {
        (kind, one["place"]): one
        for kind in KINDS
        if kind != NEURONS
        for one in facts.get(kind, [])
    }
    every = _other_groups(model) if saved else {}
    for kind, place in saved:
        wide = every.get((kind, place))
        if wide is None or wide.hidden_dim < saved[kind, place]["hidden_dim"]:
            had = [one["hidden_dim"] for key, one in saved.items() if key[0] == kind]
            has = [one.hidden_dim for key, one in every.items() if key[0] == kind]
            row = KINDS[kind]
            raise ArgumentError(
                f"The checkpoint holds {row.holder}s with the {row.units} {had}, which "
                f"the model's, {has}, cannot become. Make the model as it was."
            )
    return {key: (every[key], one) for key, one in saved.items()}


def _named(
    model: keras.Model, others: Mapping[tuple[str, int], FFN] | None = None
) -> list[tuple[str, keras.Variable]]:
    """Every variable by its name, with those of `others`; None: of the pruned ones."""
    # Not the teacher's: it is not trained, and may be the larger one.
    named = [
        (f"model/{place:05d}/{variable.name}", variable)
        for place, variable in enumerate(student_of(model).variables)
    ]
    named += [
        (f"neurons/{place:05d}/{variable.name}", variable)
        for place, ffn in enumerate(find_ffns(model))
        if not ffn.masks_itself and ffn.built
        for variable in ffn.state.variables_of_neurons
    ]
    others = _pruned_others(model) if others is None else others
    named += [
        (f"{kind}/{place:05d}/{variable.name}", variable)
        for (kind, place), ffn in others.items()
        for variable in ffn.state.variables_of_neurons
    ]
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and optimizer.built:
        named += [
            (f"optimizer/{place:05d}", variable)
            for place, variable in enumerate(own_variables(optimizer))
        ]
    return named


def _restore_probes(model: keras.Model, ffns: list[FFN], facts: dict) -> None:
    if any(ffn.state.probe is not None for ffn in ffns):
        detach_probes(model, ffns)
    pairs = [
        (ffn, _probe_of(saved["probe"]))
        for ffn, saved in zip(ffns, facts["ffns"], strict=True)
        if saved["probe"] is not None
    ]
    if pairs:
        attach_probes(model, pairs)


def _probe_of(config: dict) -> Probe:
    """The probe that a config describes; nothing else is made of one."""
    try:
        probe = keras.saving.deserialize_keras_object(config, safe_mode=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"The checkpoint's probe cannot be made: {error}"
        ) from error
    if not isinstance(probe, Probe):
        raise ArgumentError(
            "The checkpoint's probe must be one of a pruning method. Received: "
            f"{type(probe).__name__}."
        )
    return probe


def _check_same_kind(model: keras.Model, facts: dict) -> None:
    _check_known(facts)
    if not is_built(student_of(model)) or not student_of(model).variables:
        raise ArgumentError(
            f"Model '{model.name}' has no variables yet. Build it, or call it once, "
            "before a checkpoint is restored."
        )
    optimizer = getattr(model, "optimizer", None)
    found = optimizer and type(optimizer).__name__
    if found != facts["optimizer"]:
        raise ArgumentError(
            f"The checkpoint holds the state of the optimizer {facts['optimizer']}, "
            f"but the model is compiled with {found}. Compile it as it was."
        )
    ffns, saved = find_ffns(model), facts["ffns"]
    wide = [ffn.hidden_dim for ffn in ffns]
    kept = [ffn["hidden_dim"] for ffn in saved]
    if len(ffns) != len(saved) or any(w < k for w, k in zip(wide, kept, strict=True)):
        raise ArgumentError(
            f"The model's FFN widths {wide} cannot be narrowed to the checkpoint's "
            f"{kept}. Build the model as it was when the checkpoint was saved."
        )


def _check_known(facts: dict) -> None:
    ffns = facts.get("ffns")
    names = ("full_dim", "hidden_dim", "probe")
    if not isinstance(ffns, list) or not all(
        isinstance(ffn, dict) and set(names) <= set(ffn) and _are_widths(ffn)
        for ffn in ffns
    ):
        raise ArgumentError(
            f"The checkpoint tells of no FFNs, or not of their {', '.join(names)}. "
            "Restore it from a copy, or resume from the one before."
        )
    for kind, row in KINDS.items():
        others = facts.get(kind, [])
        for one in others if isinstance(others, list) else [others]:
            numbers = ("place", "full_dim", "hidden_dim")
            if not isinstance(one, dict) or not all(
                type(one.get(name)) is int and one[name] >= 0 for name in numbers
            ):
                raise ArgumentError(
                    f"The checkpoint does not tell how many {row.units} its "
                    f"{row.holder}s have. Restore it from a copy, or resume from the "
                    "one before."
                )


def _are_widths(ffn: dict) -> bool:
    widths = ffn["hidden_dim"], ffn["full_dim"]
    return all(type(n) is int for n in widths) and 1 <= widths[0] <= widths[1]


def _check_same_variables(
    named: Iterable[tuple[str, keras.Variable]], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    here = {name: tuple(variable.shape) for name, variable in named}
    if here == shapes:
        return
    name = next(name for name in [*shapes, *here] if shapes.get(name) != here.get(name))
    raise ArgumentError(
        f"The checkpoint is of another model: '{name}' has the shape "
        f"{shapes.get(name)} in the checkpoint and {here.get(name)} in the model "
        "(None: no such variable). Make and compile the model as it was."
    )
