"""What a model costs, and the most that it may cost: parameters or FLOPs."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_idea._graph.find import graph_of
from keras_idea._graph.group import FFN
from keras_idea._groups.state import NeuronState
from keras_idea._keras.layers import student_of, walk
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError

# Where attentions keep the layer that makes queries: Keras's and KerasHub's by family.
_QUERIES = ("query", "_query_dense", "query_dense", "q_proj", "query_projector")


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a model costs.

    Attributes:
        parameters: int, of the narrow model, without scores and masks.
        flops: int, operations per token in a forward pass, two per weight in a matrix,
            without the products of attention's positions. Of a model with convolutions:
            operations per sample, two per weight at each place where it is used.
        per: str, "token" or "sample".
    """

    parameters: int
    flops: int
    per: str

    def __str__(self) -> str:
        """The costs in words."""
        return f"{self.parameters:,} parameters, {self.flops:,} FLOPs per {self.per}"


@dataclasses.dataclass(frozen=True)
class Budget:
    """The most that the narrow model may cost: parameters or FLOPs, or no limit."""

    parameters: int | None = None
    flops: int | None = None

    def __post_init__(self) -> None:
        for name, value in self._limits.items():
            check_int(f"target_{name}", value, minimum=1)
        if len(self._limits) > 1:
            raise ArgumentError(
                "Give one of `target_parameters` and `target_flops`: both say how "
                "narrow to prune."
            )

    @property
    def _limits(self) -> dict[str, int]:
        return {name: n for name, n in vars(self).items() if n is not None}

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self._limits)

    def __str__(self) -> str:
        """The limit, as it was given."""
        return ", ".join(f"target_{name}={n:,}" for name, n in self._limits.items())

    def allows(self, costs: Costs) -> bool:
        """Whether costs are within the limit."""
        return all(getattr(costs, name) <= n for name, n in self._limits.items())


def plain_parameters(model: keras.Model) -> int:
    """Counts the parameters of the pruned model, without scores, masks or a teacher."""
    return sum(math.prod(variable.shape) for variable in _plain_weights(model))


def _plain_weights(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights of a model, of a `Distiller` those of its student."""
    student = student_of(model)
    held = [layer for layer in walk(student) if isinstance(layer, NeuronState)]
    states = {id(variable) for layer in held for variable in layer.variables}
    return [weight for weight in student.weights if id(weight) not in states]


def costs_of(
    model: keras.Model, ffns: Sequence[FFN]
) -> Callable[[Sequence[int]], Costs]:
    """Returns a function of the FFNs' widths that gives the costs of the narrow model.

    Convolutions are used at each place of a sample, so in a model with some all
    matrices are counted so, frozen ones too. Heights and widths that the model leaves
    open count as `OPEN_SIZE`. Of a `Distiller`, only the student counts.
    """
    wide = {id(variable): tuple(variable.shape) for variable in _plain_weights(model)}
    places = graph_of(student_of(model)).uses
    uses = dict.fromkeys(map(id, matrices(student_of(model))), 1) | places
    per = "sample" if places else "token"

    def costs(widths: Sequence[int]) -> Costs:
        shapes: dict[int, Any] = {key: list(shape) for key, shape in wide.items()}
        for ffn, width in zip(ffns, widths, strict=True):
            for cut in ffn.held_cuts():  # a kernel between two FFNs has two cuts
                shapes[id(cut.variable)][cut.axis] -= cut.lost(width)
        counts = {key: math.prod(shape) for key, shape in shapes.items()}
        products = sum(count * uses.get(key, 0) for key, count in counts.items())
        return Costs(sum(counts.values()), 2 * products, per)

    return costs


def matrices(model: keras.Model) -> list[keras.Variable]:
    """Returns the trainable weights that every token is multiplied by.

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


def multiply_adds(model: keras.Model, length: int) -> int:
    """Counts the multiply-adds of a token in a forward pass: all products of matrices.

    In attention, each token meets every position of its sequence twice, masked or not.
    """
    held = [getattr(layer, name, None) for layer in walk(model) for name in _QUERIES]
    features = 0
    for query in {id(layer): layer for layer in held}.values():
        shape = getattr(query, "partial_output_shape", [getattr(query, "units", 0)])
        features += math.prod(filter(None, shape)) if any(shape) else 0
    weights = sum(math.prod(variable.shape) for variable in matrices(model))
    return weights + 2 * length * features
