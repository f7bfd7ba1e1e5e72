"""Counts multiply-adds from the shapes of the weights."""

import math
import re

import keras

from keras_idea._graph.find import graph_of
from keras_idea._keras.layers import walk

# Where attentions keep the layer that makes queries: this package's, Keras's and
# KerasHub's by family.
_QUERIES = ("query", "_query_dense", "query_dense", "q_proj", "query_projector")


def matrices(model: keras.Model) -> list[keras.Variable]:
    """Those trainable weights of a built model that every token is multiplied by.

    Embeddings are among them only if they are the logits' matrix too; of positions none
    is. Norms, biases of any rank and the pruning state are not.
    """
    logits = {
        id(layer.embeddings)
        for layer in walk(model)
        if isinstance(layer, keras.layers.Embedding)
        and layer.built
        and getattr(layer, "tie_weights", False)
    }
    return [
        variable
        for variable in model.trainable_variables
        if len(variable.shape) > 1
        and not variable.name.endswith("bias")
        and (variable.name != "embeddings" or id(variable) in logits)
    ]


def uses_of_matrices(model: keras.Model) -> tuple[dict[int, int], str]:
    """How often each matrix is used, by its `id`, for one "token" or "sample".

    Convolutions are used at each place of a sample, so in a model with some all
    matrices are counted so, frozen ones too. Heights and widths that the model leaves
    open count as `OPEN_SIZE`.
    """
    once = dict.fromkeys(map(id, matrices(model)), 1)
    uses = graph_of(model).uses
    return ({**once, **uses}, "sample") if uses else (once, "token")


def matrix_weights(model: keras.Model) -> int:
    """Weights that every token is multiplied by: parameters in `matrices`.

    FFNs count as wide as they are physically: a masked neuron is multiplied all the
    same.
    """
    return sum(math.prod(variable.shape) for variable in matrices(model))


def attention_width(model: keras.Model) -> int:
    """Features of the queries of all heads, summed over the attentions of a model.

    0: there is no attention that is known.
    """
    return sum(_query_features(layer) for layer in walk(model))


def _query_features(layer: keras.layers.Layer) -> int:
    found = (getattr(layer, name, None) for name in _QUERIES)
    query = next((query for query in found if query is not None), None)
    if isinstance(query, keras.layers.Dense):
        return query.units
    if isinstance(query, keras.layers.EinsumDense) and query.built:
        inputs, kernel, _ = re.split(",|->", query.equation)
        sizes = zip(kernel, query.kernel.shape, strict=True)
        return math.prod(size for axis, size in sizes if axis not in inputs)
    return 0


def multiply_adds(model: keras.Model, sequence_length: int | None) -> int:
    """Counts the multiply-adds of a token in a forward pass: all products of matrices.

    In the products of queries and keys, and of their result and values, each token
    meets every position of its sequence: the whole square is computed, masked or not.
    A `sequence_length` of None leaves them out.
    """
    length = sequence_length or 0
    return matrix_weights(model) + 2 * length * attention_width(model)
