"""Which axis of which kernel lies on the model axis of a mesh.

As in Megatron-LM: the first matrices of a block's two branches are cut by their
outputs (heads, neurons), the last ones by their inputs, so that a branch ends in one
sum over the devices; embeddings and logits are cut by the vocabulary. Everything is
read off the layers themselves, so that it holds for every family of our table.
"""

from collections.abc import Iterator
from typing import TypeAlias

import keras

from keras_idea.errors import ConfigError
from keras_idea.finding.find import find_ffns
from keras_idea.groups.cut import Cut
from keras_idea.keras_private.layers import stored_kernel, walk
from keras_idea.models.attention import CausalSelfAttention
from keras_idea.validation import plural

#: The name of the mesh's axis that kernels are cut along.
MODEL = "model"
#: (variable, the axis of it that is cut, how many parts that has at least).
_Split: TypeAlias = tuple[keras.Variable, int, int]
# Of KerasHub's attentions with Dense layers (SmolLM3, T5): what projects, along which
# axis its heads lie, and what tells how many they are.
_QUERY_HEADS = ("num_attention_heads", "num_heads")
_DENSE_ATTENTIONS = (
    (("q_proj", "query_projector"), 1, _QUERY_HEADS),
    (
        ("k_proj", "v_proj", "key_projector", "value_projector"),
        1,
        ("num_key_value_heads", "num_heads"),
    ),
    (("o_proj", "output_projector"), 0, _QUERY_HEADS),
)


def kernel_layouts(model: keras.Model, size: int) -> dict[str, tuple[str | None, ...]]:
    """Computes the layout of each kernel that is cut along the model axis.

    Key and value heads stay whole on each device if the axis does not divide their
    number. So does a vocabulary.

    Args:
        model: keras.Model. This package's decoder or a KerasHub `CausalLM`. Its
            variables need no values.
        size: int. Devices of the mesh's model axis.

    Returns:
        dict. Maps a variable's path to its axes, as for `keras.distribution.LayoutMap`.

    Raises:
        ConfigError: If the axis does not divide the FFN width or the query heads, or if
            the model holds experts and `size` is above 1.

    Example:
    >>> kernel_layouts(model, 2)["block_0/ffn_0/up_kernel"]
    (None, 'model')
    """
    layouts = {}
    for variable, axis, parts in _cuts(model, size):
        if parts % size == 0:
            axes: list[str | None] = [None] * len(variable.shape)
            axes[axis] = MODEL
            layouts[variable.path] = tuple(axes)
    return layouts


def _cuts(model: keras.Model, size: int) -> Iterator[_Split]:
    layers, ffns = list(walk(model)), find_ffns(model)
    for layer in layers:
        if isinstance(layer, CausalSelfAttention):
            yield from _attention_cuts(layer, size)
        elif isinstance(layer, keras.layers.Embedding):
            yield from _vocabulary_cuts(layer)
        elif isinstance(layer, keras.layers.Dense) and layer.name == "logits":
            yield layer.kernel, 1, layer.kernel.shape[1]
    for ffn in ffns:
        yield from _ffn_cuts(ffn.name, ffn.cuts(), size)
    taken = {id(layer) for ffn in ffns for layer in ffn.layers}
    heads = [
        cut
        for layer in layers
        if id(layer) not in taken
        for cut in (*_einsum_heads(layer), *_dense_heads(layer))
    ]
    yield from _checked(heads, size)


def _ffn_cuts(name: str, cuts: list[Cut], size: int) -> Iterator[_Split]:
    for cut in cuts:
        if cut.group is not None and size > 1:
            raise ConfigError(
                f"A model axis does not support mixtures of experts. Received: "
                f"model={size}, and {name} holds experts. Use a larger data axis."
            )
        if cut.neurons % size:
            raise ConfigError(
                "The model axis must divide the FFN width. Received: "
                f"model={size}, and {name} has {plural(cut.neurons, 'neuron')}. Set "
                f"the FFN width to {cut.neurons // size * size or size} or "
                f"{-(-cut.neurons // size) * size}."
            )
        yield cut.variable, cut.axis, cut.variable.shape[cut.axis]


def _attention_cuts(layer: CausalSelfAttention, size: int) -> Iterator[_Split]:
    # Kernels of (features, heads x features of a head): whole heads are cut.
    heads, key_value_heads = layer.num_heads, layer.num_key_value_heads
    yield from _checked(
        [
            (layer.query.kernel, 1, heads),
            (layer.key.kernel, 1, key_value_heads),
            (layer.value.kernel, 1, key_value_heads),
            (layer.output_projection.kernel, 0, heads),
        ],
        size,
    )


def _checked(cuts: list[_Split], size: int) -> list[_Split]:
    """Cuts by heads, if the axis divides those of the queries."""
    most = max((heads for _, _, heads in cuts), default=size)
    if most % size:
        raise ConfigError(
            "The model axis must divide the query heads. Received: "
            f"model={size}, with {plural(most, 'head')}. Use a smaller model axis and "
            "a larger data axis."
        )
    return cuts


def _einsum_heads(layer: keras.layers.Layer) -> Iterator[_Split]:
    """The heads in a projection's kernel: what comes first of them and their features.

    Of "btd,ndh->btnh" n, which the output has before h; of "btnh,nhd->btd" too, which
    the input has before h.
    """
    if not isinstance(layer, keras.layers.EinsumDense):
        return
    inputs, rest = layer.equation.replace(" ", "").split(",")
    kernel, output = rest.split("->")
    made = [label for label in output if label in kernel and label not in inputs]
    summed = [label for label in inputs if label in kernel and label not in output]
    pair = next((labels for labels in (made, summed) if len(labels) == 2), None)
    if pair is not None:
        variable, axis = stored_kernel(layer), kernel.index(pair[0])
        yield variable, axis, variable.shape[axis]


def _dense_heads(attention: keras.layers.Layer) -> Iterator[_Split]:
    """The heads in an attention's Dense projections, whose kernels do not show them."""
    for projections, axis, counts in _DENSE_ATTENTIONS:
        heads = next(
            (getattr(attention, n) for n in counts if hasattr(attention, n)), 0
        )
        for name in projections:
            layer = getattr(attention, name, None)
            if heads and isinstance(layer, keras.layers.Dense):
                yield stored_kernel(layer), axis, heads


def _vocabulary_cuts(layer: keras.layers.Embedding) -> Iterator[_Split]:
    yield layer.embeddings, 0, layer.embeddings.shape[0]
    reverse = getattr(layer, "reverse_embeddings", None)
    if reverse is not None and not getattr(layer, "tie_weights", True):
        yield reverse, 1, reverse.shape[1]
