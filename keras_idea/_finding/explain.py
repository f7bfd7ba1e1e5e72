"""Why the layers of a model are pruned, or are not."""

import dataclasses

import keras

from keras_idea._finding.find import counted, find_groups
from keras_idea._graph.layers import slides
from keras_idea._graph.stated import why_not_ours
from keras_idea._groups.kinds import CHANNELS, KINDS, KV_GROUPS, NEURONS, KindName
from keras_idea._keras.attention import projections_of
from keras_idea._keras.channels import dense_of
from keras_idea._keras.layers import student_of, walk
from keras_idea._layers.ffn import FFNLayer
from keras_idea._validation import plural

_UNBUILT = (
    "Build it, or call it on data, first (or the models in it, if it has no `call`)."
)


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
        readers: dict. Maps the path of a layer in `left_out` that reads neurons which
            can be pruned to the name of their FFN.
        nothing: str. What to say if there is none of these.
    """

    groups: dict[KindName, dict[str, int]]
    left_out: dict[str, str]
    readers: dict[str, str] = dataclasses.field(default_factory=dict)
    nothing: str = ""

    @property
    def taken(self) -> dict[str, int]:
        """Dict. Maps the name of an FFN to its number of neurons."""
        return self.groups.get(NEURONS, {})

    @property
    def heads(self) -> dict[str, int]:
        """Dict. Maps the name of an attention layer to its key/value heads."""
        return self.groups.get(KV_GROUPS, {})

    def __str__(self) -> str:
        """A table: one line per FFN, attention layer, and layer that is left out."""
        rows = [
            (name, plural(count, KINDS[kind].unit))
            for kind, counts in self.groups.items()
            for name, count in counts.items()
        ]
        if not (rows or self.left_out):
            return self.nothing
        for path, why in self.left_out.items():
            reads = self.readers.get(path)
            kinds = [kind for kind, found in self.groups.items() if reads in found]
            units = KINDS[kinds[0]].units if kinds else ""
            but = f"reads the {units} of {reads}; its own outputs: " if reads else ""
            rows.append((path, f"{but}no, {why}" if but else f"no: {why}"))
        width = max((len(name) for name, _ in rows), default=0)
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
    groups = find_groups(model)
    taken: set[str] = set()
    readers: dict[str, str] = {}
    for group in groups:
        heads = group.kind == KV_GROUPS
        layers = group.makers if group.shown and not heads else group.layers
        taken |= {layer.path for layer in layers}
        taken.add(group.layer.path)
        if not heads:
            readers |= {layer.path: group.name for layer in group.readers}
    numbers: dict[KindName, dict[str, int]] = {kind: {} for kind in KINDS}
    for group in groups:
        numbers[group.kind][group.name] = group.hidden_dim
    every = _left_out(model)
    left_out = {
        path: why
        for path, why in every.items()
        if path not in taken and path.rpartition("/")[0] not in every
    }
    return Explanation(
        numbers,
        left_out,
        {path: name for path, name in readers.items() if path in left_out},
        _nothing_in(model),
    )


def why_nothing(model: keras.layers.Layer, kind: KindName) -> str:
    """What to say of a model in which nothing of a kind can be pruned: why."""
    nothing = _nothing_in(model) if kind == NEURONS else "It holds none that is known."
    left_out = {
        path: why
        for path, why in _left_out(model).items()
        if (path in _convolutions(model)) == (kind == CHANNELS)
    }
    if not left_out:
        return f"{nothing} See `keras_idea.explain(model)`."
    paths = list({why: path for path, why in reversed(left_out.items())}.values())[::-1]
    shown = [*paths, *(path for path in left_out if path not in paths)][:3]
    reasons = "; ".join(f"{path}: {left_out[path]}" for path in shown)
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return (
        f"Its {KINDS[kind].layers}: {reasons}{more}. See `keras_idea.explain(model)`."
    )


def why_no_heads(model: keras.layers.Layer) -> dict[str, str]:
    """By the path of an attention layer, why its heads cannot be pruned."""
    paths = {layer.path for layer in walk(model) if projections_of(layer) is not None}
    return {path: why for path, why in _left_out(model).items() if path in paths}


def _convolutions(model: keras.layers.Layer) -> set[str]:
    return {layer.path for layer in walk(model) if slides(layer)}


def _nothing_in(model: keras.layers.Layer) -> str:
    """What to say of a model without any built Dense or attention layer."""
    if any(dense_of(layer) is not None for layer in walk(model)):
        return f"It holds no built Dense layer. {_UNBUILT}"
    what = "Dense, EinsumDense or attention layer, so nothing in it can be pruned."
    if student_of(model).built:
        return f"It holds no {what}"
    return f"It is not built, and holds no Dense layer yet. {_UNBUILT}"


def _left_out(model: keras.layers.Layer) -> dict[str, str]:
    """By the path of a layer, why what it makes stays."""
    ours = {
        layer.path: why
        for layer in walk(model)
        if isinstance(layer, FFNLayer) and (why := why_not_ours(layer)) is not None
    }
    return {**ours, **counted(model)[1]}
