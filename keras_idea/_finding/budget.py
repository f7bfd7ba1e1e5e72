"""Finds how wide a model may be within a limit of parameters or FLOPs."""

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras

from keras_idea._finding.find import FFN
from keras_idea._finding.work_count import uses_of_matrices
from keras_idea._groups.state import NeuronState
from keras_idea._keras.layers import student_of, walk
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError

T = TypeVar("T")


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
    per: str = "token"


@dataclasses.dataclass(frozen=True)
class Budget:
    """The most that the narrow model may cost: parameters or FLOPs, or no limit."""

    parameters: int | None = None
    flops: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.arguments().items():
            check_int(name, value, minimum=1)
        if len(self.arguments()) > 1:
            raise ArgumentError(
                "Give one of `target_parameters` and `target_flops`: both say how "
                "narrow to prune."
            )

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self.arguments())

    def __str__(self) -> str:
        """The limit, as it was given."""
        return ", ".join(f"{name}={n:,}" for name, n in self.arguments().items())

    def arguments(self) -> dict[str, int]:
        """The arguments of `IdeaPruneCallback` that it was made of."""
        values = {"target_parameters": self.parameters, "target_flops": self.flops}
        return {name: value for name, value in values.items() if value is not None}

    def allows(self, costs: Costs) -> bool:
        """Whether costs are within the limit."""
        if self.parameters is not None:
            return costs.parameters <= self.parameters
        return self.flops is None or costs.flops <= self.flops

    def format(self, costs: Costs) -> str:
        """Costs in the unit of the limit."""
        if self.flops is not None:
            return f"{costs.flops:,} FLOPs per {costs.per}"
        return f"{costs.parameters:,} parameters"

    def most(self, sizes: Sequence[T], costs: Callable[[T], Costs], smallest: str) -> T:
        """Returns the last of some sizes, of ascending costs, that the budget allows.

        `smallest` describes the first one, for the error if even that is too large.
        """
        count = bisect.bisect_right(
            sizes, False, key=lambda s: not self.allows(costs(s))
        )
        if not count:
            raise ArgumentError(
                f"{self} cannot be met by pruning. At the smallest {smallest}, the "
                f"model still has {self.format(costs(sizes[0]))}. Raise the budget, or "
                "begin with a model of fewer layers or features."
            )
        return sizes[count - 1]


def plain_parameters(model: keras.Model) -> int:
    """Counts the parameters of the pruned model, without scores, masks or a teacher."""
    return sum(math.prod(variable.shape) for variable in _plain_weights(model))


def costs_of(
    model: keras.Model, ffns: Sequence[FFN]
) -> Callable[[Sequence[int]], Costs]:
    """Returns a function of the FFNs' widths that gives the costs of the narrow model.

    Of a `Distiller`, only the student counts.
    """
    wide = {id(variable): tuple(variable.shape) for variable in _plain_weights(model)}
    uses, per = uses_of_matrices(student_of(model))
    cuts = [(place, cut) for place, ffn in enumerate(ffns) for cut in ffn.held_cuts()]

    def costs(widths: Sequence[int]) -> Costs:
        shapes: dict[int, Any] = {key: list(shape) for key, shape in wide.items()}
        for place, cut in cuts:  # a kernel between two FFNs has two cuts
            shapes[id(cut.variable)][cut.axis] -= cut.lost(widths[place])
        counts = {key: math.prod(shape) for key, shape in shapes.items()}
        products = sum(count * uses.get(key, 0) for key, count in counts.items())
        return Costs(sum(counts.values()), 2 * products, per)

    return costs


def check_round_to(round_to: int, widest: int) -> None:
    """Raises if no multiple of `round_to` is within the widest FFN."""
    if round_to > widest:
        raise ArgumentError(
            f"No multiple of `round_to` is within the FFN width of {widest}. "
            f"Received: round_to={round_to}. Lower `round_to`."
        )


def _plain_weights(model: keras.Model) -> list[keras.Variable]:
    # Not seeds and the like.
    weights = set(map(id, student_of(model).weights))
    plain = plain_variables(student_of(model))
    return [variable for variable in plain if id(variable) in weights]


def plain_variables(model: keras.layers.Layer) -> list[keras.Variable]:
    """The variables of a model, without scores and masks."""
    held = [layer.variables for layer in walk(model) if isinstance(layer, NeuronState)]
    states = {id(variable) for variables in held for variable in variables}
    return [variable for variable in model.variables if id(variable) not in states]
