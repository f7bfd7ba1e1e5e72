"""Why the layers of a model are pruned, or are not."""

import dataclasses

import keras

from keras_idea.finding.find import Kind, find_groups
from keras_idea.finding.find_dense import dense_groups
from keras_idea.finding.find_heads import find_heads
from keras_idea.groups.dense import is_dense
from keras_idea.keras_private.layer_walk import walk
from keras_idea.validation import plural

_NOTHING = (
    "It holds no built Dense layer. Build it, or call it on data, first (or the models "
    "in it, if it has no `call`)."
)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What can be pruned in a model, and why the rest cannot.

    Attributes:
        taken: dict. Maps the name of an FFN to its number of neurons.
        heads: dict. Maps the name of an attention layer to its number of key/value
            heads. They are pruned if you name "kv_groups".
        left_out: dict. Maps the path of a layer to a reason. For a Dense or EinsumDense
            layer: why its outputs are not neurons that can be pruned. For an attention
            layer: why its heads cannot be pruned.
    """

    taken: dict[str, int]
    heads: dict[str, int]
    left_out: dict[str, str]

    def __str__(self) -> str:
        """A table: one line per FFN, attention layer, and layer that is left out."""
        if not (self.taken or self.heads or self.left_out):
            return _NOTHING
        rows = [(name, plural(n, "neuron")) for name, n in self.taken.items()]
        rows += [(name, plural(n, "key/value head")) for name, n in self.heads.items()]
        rows += [(path, f"no: {why}") for path, why in self.left_out.items()]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:{width}}  {what}" for name, what in rows)


def explain(model: keras.layers.Layer) -> Explanation:
    """Shows which neurons and heads of a model can be pruned, and why others cannot.

    Print the result before you train, to see what `IdeaPruneCallback` will prune.

    Args:
        model: keras.layers.Layer. A built Keras model or layer.

    Returns:
        `Explanation`. Printed, it is a table of every Dense, EinsumDense and attention
        layer. The projections inside an attention layer have no lines of their own.

    Raises:
        ValueError: If `model` is not a Keras layer.

    Example:
    >>> ki.explain(model).taken
    {'block_0/ffn_0': 8, 'block_1/ffn_1': 8}
    """
    groups = find_groups(model)
    taken = {layer.path for group in groups for layer in group.layers}
    numbers: dict[Kind, dict[str, int]] = {"neurons": {}, "kv_groups": {}}
    for group in groups:
        numbers[group.kind][group.name] = group.hidden_dim
    attention = find_heads(model).left_out
    left_out = {
        path: why
        for path, why in _left_out(model).items()
        if path not in taken and path.rpartition("/")[0] not in attention
    }
    return Explanation(
        numbers["neurons"], numbers["kv_groups"], {**left_out, **attention}
    )


def why_nothing(model: keras.layers.Layer, kind: Kind) -> str:
    """What to say of a model in which nothing of a kind can be pruned: why."""
    layers, nothing, left_out = "Dense layers", _NOTHING, {}
    if kind == "neurons":
        left_out = _left_out(model)
    else:
        layers, nothing = "attention layers", "It holds none that is known."
        left_out = find_heads(model).left_out
    if not left_out:
        return f"{nothing} See `keras_idea.explain(model)`."
    told = "; ".join(f"{path}: {why}" for path, why in list(left_out.items())[:3])
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"Its {layers}: {told}{more}. See `keras_idea.explain(model)`."


def _left_out(model: keras.layers.Layer) -> dict[str, str]:
    """Path of a Dense or EinsumDense layer -> why its outputs are no such neurons."""
    others = {
        layer.path: f"its equation is {layer.equation!r}"
        for layer in walk(model)
        if isinstance(layer, keras.layers.EinsumDense) and not is_dense(layer)
    }
    return {**others, **dense_groups(model).left_out}
