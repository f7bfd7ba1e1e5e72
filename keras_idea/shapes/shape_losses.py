"""The loss of a model in many shapes, of which few are made."""

from typing import Any

import keras
from keras import ops

from keras_idea.shapes.samples import loss_of
from keras_idea.shapes.shrink import (
    Importance,
    cut,
    groups_of,
    scores_left,
    widths_in,
    zero_unimportant,
)
from keras_idea.shapes.targets import Shape


class ShapeLosses:
    """Judges shapes of a model by its loss on data, without training.

    A model computes with zeros in the place of neurons and heads what it computes
    without them. So a model is made and compiled for each depth and hidden size alone,
    and what goes of its widths is zeroed. The last one is kept: ask for shapes of one
    depth and hidden size one after another.

    Args:
        model: a compiled Keras model without pruning state; it is left as it is.
        importance: its `Importance`.
        data: as of `loss_of`.
        batch_size: int, of data that are arrays.
    """

    def __init__(
        self, model: keras.Model, importance: Importance, data: Any, batch_size: int
    ) -> None:
        self._model, self._importance = model, importance
        self._data, self._batch_size = data, batch_size
        self._made: tuple[Shape, keras.Model] | None = None

    def of(self, shape: Shape) -> float:
        """The loss of the model in a shape; infinity where it is not a number."""
        widths: Shape = {kind: shape[kind] for kind in widths_in(shape)}
        others = {axis: size for axis, size in shape.items() if axis not in widths}
        copy = self._of_depth_and_features(others)
        if not widths:
            return loss_of(copy, self._data, self._batch_size)
        rows = [row for group in groups_of(copy, widths) for row in group.cuts()]
        before = [ops.copy(row.variable.value) for row in rows]
        zero_unimportant(
            copy, widths, scores_left(self._model, shape, self._importance)
        )
        loss = loss_of(copy, self._data, self._batch_size)
        for row, value in zip(rows, before, strict=True):
            row.variable.assign(value)
        return loss

    def _of_depth_and_features(self, shape: Shape) -> keras.Model:
        if self._made is None or self._made[0] != shape:
            self._made = None  # two models at once are one too many
            self._made = shape, cut(self._model, shape, self._importance)
        return self._made[1]
