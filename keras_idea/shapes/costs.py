"""What a model would cost in another shape, counted without making it."""

import functools

import keras

from keras_idea.finding.budget import Costs, costs_of_shapes
from keras_idea.finding.work_count import uses_of_matrices
from keras_idea.shapes.blocks import find_blocks
from keras_idea.shapes.hidden_size import feature_axes
from keras_idea.shapes.shrink import Importance, groups_of
from keras_idea.shapes.targets import Axis, Shape, size_of


class ShapeCosts:
    """The parameters and FLOPs of a model without pruning state in any shape.

    The shapes are of the keys of `axes`; `importance` says which blocks stay. `full` is
    how many there are of an axis, of the one that has most.
    """

    def __init__(self, model: keras.Model, axes: Shape, importance: Importance) -> None:
        self._weights = {id(v): tuple(v.shape) for v in model.weights}
        self._matrices, self._per = uses_of_matrices(model)
        self._groups = groups_of(model, axes)
        self._name = model.name
        self.full: dict[Axis, int] = {}
        for group in self._groups:
            most = max(self.full.get(group.kind, 0), group.hidden_dim)
            self.full[group.kind] = most
        self._features: dict[int, list[int]] = {}
        if "hidden_dim" in axes:
            self.full["hidden_dim"] = len(importance.features)
            self._features = feature_axes(model)
        if "blocks" in axes:
            self._blocks = blocks = find_blocks(model)
            self.full["blocks"] = len(blocks)
            # To ask is to make a backbone anew, and a grid asks again and again.
            self._kept = functools.cache(lambda n: {*importance.blocks(blocks, n)})

    def targets(self, shape: Shape) -> Shape:
        """A shape in fractions where groups of a kind are not equally wide."""
        sizes = {(group.kind, group.hidden_dim) for group in self._groups}
        kinds: list[Axis] = [kind for kind, _ in sizes]
        return {
            axis: size / self.full[axis] if kinds.count(axis) > 1 else size
            for axis, size in shape.items()
        }

    def of(self, shape: Shape) -> Costs:
        """The `Costs` in a shape; an axis that it does not name stays as it is."""
        shape = self.targets(shape)
        shapes = {key: list(sizes) for key, sizes in self._weights.items()}
        for group in self._groups:
            if group.kind in shape:
                target = shape[group.kind]
                size = size_of(group.kind, target, group.hidden_dim, group.name)
                for cut in group.held_cuts():
                    shapes[id(cut.variable)][cut.axis] -= cut.lost(size)
        if "hidden_dim" in shape:
            full = self.full["hidden_dim"]
            size = size_of("hidden_dim", shape["hidden_dim"], full, self._name)
            for key, axes in self._features.items():
                for axis in axes:
                    shapes[key][axis] = size
        if "blocks" in shape:
            full = self.full["blocks"]
            count = size_of("blocks", shape["blocks"], full, self._name)
            kept = self._kept(count)
            for place, block in enumerate(self._blocks.layers):
                if place not in kept:
                    for variable in block.variables:
                        shapes.pop(id(variable), None)
        return costs_of_shapes(shapes, self._matrices, self._per)
