"""What training has cost so far, from the shapes of the weights."""

import math
import re
from collections.abc import Iterable

import keras

from keras_idea.finding.find import FFN, find_groups
from keras_idea.finding.find_channels import find_channels
from keras_idea.functional.counts import token_multiply_adds
from keras_idea.keras_private.layers import walk
from keras_idea.keras_private.train_step import owner_of_train_function

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
    uses = find_channels(model).uses
    return ({**once, **uses}, "sample") if uses else (once, "token")


def matrix_weights(model: keras.Model) -> int:
    """Weights that every token is multiplied by: parameters in `matrices`.

    FFNs count as wide as they are physically: a masked neuron is multiplied all the
    same.
    """
    return sum(math.prod(variable.shape) for variable in matrices(model))


def matrix_weights_at(model: keras.Model, neurons: Iterable[tuple[FFN, int]]) -> int:
    """As `matrix_weights`, of a model whose FFNs have so many neurons each."""
    shapes = {id(variable): list(variable.shape) for variable in matrices(model)}
    for ffn, stay in neurons:
        for cut in ffn.held_cuts():
            if id(cut.variable) in shapes:
                shapes[id(cut.variable)][cut.axis] -= cut.lost(stay)
    return sum(map(math.prod, shapes.values()))


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
    """Multiply-adds of a token in a forward pass: see `token_multiply_adds`.

    `sequence_length` are tokens that attend to each other; None: unknown, and the
    products that have no weights are left out.
    """
    length = sequence_length or 0
    return token_multiply_adds(matrix_weights(model), attention_width(model), length)


class WorkCount:
    """Sums multiply-adds times batches of a run whose FFNs become narrower in it.

    Only shapes of the model are read, so nothing syncs. `present` are the present
    `multiply_adds`. An object that has the model's train function may know better what
    the last batch took: its `work_of_step(present)`.
    """

    def __init__(self, model: keras.Model, sequence_length: int | None = None) -> None:
        self._model, self._length = model, sequence_length
        self._ffns = find_groups(model)
        self._widths = self._present_widths()
        self.present = multiply_adds(model, sequence_length)
        self._work: float = 0
        self._batches = 0

    def after(self, batches: int) -> float:
        """Multiply-adds times batches after so many batches of the `fit`.

        To be asked before each batch, so that it sees a narrowing when it happens.
        """
        owner = owner_of_train_function(self._model)
        known = getattr(owner, "work_of_step", None)
        of_batch = self.present if known is None else known(self.present)
        self._work += (batches - self._batches) * of_batch
        self._batches = batches
        widths = self._present_widths()
        if widths != self._widths:
            self._widths = widths
            self.present = multiply_adds(self._model, self._length)
        return self._work

    def _present_widths(self) -> list[int]:
        return [ffn.hidden_dim for ffn in self._ffns]
