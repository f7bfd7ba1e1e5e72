"""Why the layers of a model are pruned, or are not."""

import dataclasses

import keras

from keras_idea._finding.find import counted, find_groups
from keras_idea._graph.layers import slides
from keras_idea._graph.stated import why_not_ours
from keras_idea._groups.kinds import KINDS, KV_GROUPS, NEURONS, KindName
from keras_idea._keras.attention import projections_of
from keras_idea._keras.layers import walk
from keras_idea._layers.ffn import FFNLayer
from keras_idea._validation import plural


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What can be pruned in a model, and why the rest cannot.

    Attributes:
        groups: dict. Maps each kind ("neurons", "kv_groups", "channels") to a dict,
            which maps the name of an FFN, of an attention layer, or of the first
            convolution of a group to its number of units. Key/value heads and channels
            are pruned if you name their kind.
        left_out: dict. Maps the path of a layer to the reason why what it makes stays:
            the outputs of a Dense or EinsumDense layer, the heads of an attention
            layer, the channels of a convolution.
        readers: dict. Maps the path of a layer in `left_out` that reads units which
            can be pruned to these, such as "the neurons of ffn_0".
    """

    groups: dict[KindName, dict[str, int]]
    left_out: dict[str, str]
    readers: dict[str, str]

    @property
    def taken(self) -> dict[str, int]:
        """Dict. Maps the name of an FFN to its number of neurons."""
        return self.groups[NEURONS]

    def __str__(self) -> str:
        """A table: one line per FFN, attention layer, and layer that is left out."""
        rows = [
            (name, plural(count, KINDS[kind].unit))
            for kind, counts in self.groups.items()
            for name, count in counts.items()
        ]
        for path, why in self.left_out.items():
            reads = self.readers.get(path)
            but = f"reads {reads}; its own outputs: no, {why}"
            rows.append((path, but if reads else f"no: {why}"))
        if not rows:
            return _none(NEURONS)
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {what}" for name, what in rows)


def explain(model: keras.layers.Layer) -> Explanation:
    """Shows which neurons, heads and channels can be pruned, and why others cannot.

    Print the result before you train, to see what `IdeaPruneCallback` will prune.

    Args:
        model: keras.layers.Layer. A built Keras model or layer.

    Returns:
        `Explanation`. Printed, it is a table of every FFN, of every group of channels,
        and of every other Dense, EinsumDense, convolution and attention layer. The
        projections inside an attention layer have no lines of their own.

    Raises:
        ValueError: If `model` is not a Keras layer.

    Example:
    >>> ki.explain(model).taken
    {'block_0/ffn_0': 8, 'block_1/ffn_1': 8}
    """
    numbers: dict[KindName, dict[str, int]] = {kind: {} for kind in KINDS}
    taken: set[str] = set()
    readers: dict[str, str] = {}
    for group in find_groups(model):
        numbers[group.kind][group.name] = group.hidden_dim
        whole = group.kind == KV_GROUPS or not group.shown
        parts = group.layers if whole else group.makers
        taken |= {layer.path for layer in (group.layer, *parts)}
        reads = f"the {group.units} of {group.name}"
        readers |= {layer.path: reads for layer in group.readers}
    every = _left_out(model)
    left_out = {
        path: why
        for path, why in every.items()
        if path not in taken and path.rpartition("/")[0] not in every
    }
    readers = {path: reads for path, reads in readers.items() if path in left_out}
    return Explanation(numbers, left_out, readers)


def why_nothing(model: keras.layers.Layer, kind: KindName) -> str:
    """Says why nothing of a kind can be pruned in a model."""
    left_out = _left_out(model)
    paths = {layer.path for layer in walk(model) if slides(layer)} & left_out.keys()
    if kind == NEURONS:
        paths = left_out.keys() - paths
    elif kind == KV_GROUPS:
        paths = {layer.path for layer in walk(model) if projections_of(layer)}
    of_kind = {path: why for path, why in left_out.items() if path in paths}
    said = f"Its {KINDS[kind].layers}: {some_of(of_kind)}." if of_kind else _none(kind)
    return f"{said} See `keras_idea.explain(model)`."


def some_of(left_out: dict[str, str]) -> str:
    """Joins three of the reasons why layers are left out, each of its first layer."""
    first: dict[str, str] = {}
    for path, why in left_out.items():
        first.setdefault(why, f"{path}: {why}")
    shown = list(first.values())[:3]
    more = len(left_out) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _none(kind: KindName) -> str:
    return (
        f"It holds no built {KINDS[kind].layers}. Build it, or call it on data, first "
        "(or the models in it, if it has no `call`)."
    )


def _left_out(model: keras.layers.Layer) -> dict[str, str]:
    """By the path of a layer, why what it makes stays."""
    ours = {
        layer.path: why
        for layer in walk(model)
        if isinstance(layer, FFNLayer) and (why := why_not_ours(layer)) is not None
    }
    return {**ours, **counted(model)[1]}
