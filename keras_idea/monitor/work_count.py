"""What training has cost so far, from the shapes of the weights."""

import keras

from keras_idea.keras_private.layer_walk import walk
from keras_idea.surgery.find import find_ffns


def matrix_weights(model):
    """Weights that every token is multiplied by: parameters in matrices.

    Embeddings count only if they are the logits' matrix too. Norms, biases and the
    pruning state do not count. FFNs count as wide as they are physically: a masked
    neuron is multiplied all the same.

    Args:
        model: a built Keras model.

    Returns:
        int.
    """
    looked_up = {
        id(layer.embeddings)
        for layer in walk(model)
        if isinstance(layer, keras.layers.Embedding)
        and layer.built
        and not getattr(layer, "tie_weights", False)
    }
    total = 0
    for variable in model.trainable_variables:
        of_state = getattr(variable, "overwrite_with_gradient", False)
        if len(variable.shape) > 1 and not of_state and id(variable) not in looked_up:
            size = 1
            for length in variable.shape:
                size *= length
            total += size
    return total


def train_flops(weights, tokens):
    """Operations of training: 6 a weight and token.

    A multiply-add counts two, the backward pass twice the forward one. The
    products of queries and keys, which have no weights, are left out.

    Args:
        weights: int or float, weights in matrices, see `matrix_weights`.
        tokens: int or float.

    Returns:
        int or float, `6 weights tokens`.

    Example:
    >>> train_flops(weights=1000, tokens=10)  # 60000
    """
    return 6 * weights * tokens


class WorkCount:
    """Sums the weights times batches of a run whose FFNs become narrower in it.

    Args:
        model: the fitted Keras model, built. Only shapes are read, so nothing syncs.

    Attributes:
        weights: int, the present `matrix_weights`.
    """

    def __init__(self, model):
        self._model = model
        self._ffns = find_ffns(model)
        self._widths = self._present_widths()
        self.weights = matrix_weights(model)
        self._work = 0
        self._batches = 0

    def after(self, batches):
        """Weights times batches after so many batches of the `fit`.

        To be asked before each batch, so that it sees a narrowing when it happens.
        """
        self._work += (batches - self._batches) * self.weights
        self._batches = batches
        widths = self._present_widths()
        if widths != self._widths:
            self._widths = widths
            self.weights = matrix_weights(self._model)
        return self._work

    def _present_widths(self):
        return [ffn.hidden_dim for ffn in self._ffns]
