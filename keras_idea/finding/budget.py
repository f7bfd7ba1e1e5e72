"""How wide a model may be that costs no more than it is allowed to."""

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.finding.work_count import uses_of_matrices
from keras_idea.groups.state import NeuronState
from keras_idea.keras_private.layers import student_of, walk
from keras_idea.validation import check_choice, check_int

T = TypeVar("T")
#: Bytes of a parameter.
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a model costs.

    Attributes:
        parameters: int, of the narrow model: no scores, no masks.
        flops: int, operations of a token in a forward pass, two a weight in a matrix;
            the products of an attention's positions are not among them. Of a model with
            convolutions: those of a sample, two a weight at each place where it is
            used.
        per: str, "token" or "sample".
    """

    parameters: int
    flops: int
    per: str = "token"


@dataclasses.dataclass(frozen=True)
class Budget:
    """What the narrow model may cost at most: by one of three numbers, or not limited.

    `flops` are those of a token, or sample, in a forward pass: see `Costs`. `bytes` are
    those of the parameters in `dtype`, one of `BYTES`.
    """

    parameters: int | None = None
    bytes: int | None = None
    flops: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("parameters", "bytes", "flops"):
            if getattr(self, name) is not None:
                check_int(f"target_{name}", getattr(self, name), minimum=1)
        check_choice("target_dtype", self.dtype, list(BYTES))
        if len(self._given()) > 1:
            given = " and ".join(f"`target_{name}`" for name in self._given())
            raise ArgumentError(f"Give one of {given}: both say how narrow to prune.")

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return bool(self._given())

    def __str__(self) -> str:
        """The limit, as it was given."""
        return ", ".join(
            f"target_{name}={getattr(self, name):,}"
            + (f" ({self.dtype})" if name == "bytes" else "")
            for name in self._given()
        )

    def widest(
        self, costs: Callable[[int], Costs], full_dim: int, round_to: int = 1
    ) -> int:
        """The most neurons an FFN that the budget allows, the same in all FFNs.

        A multiple of `round_to` within `full_dim`, the widest FFN there is; the costs
        of a width do not fall. Refuses a budget that the smallest does not meet.
        """
        check_round_to(round_to, full_dim)
        widths = range(round_to, full_dim + 1, round_to)
        given_by = "" if round_to == 1 else f" (round_to={round_to})"
        return self.most(widths, costs, f"width, {round_to}{given_by}")

    def most(self, sizes: Sequence[T], costs: Callable[[T], Costs], smallest: str) -> T:
        """The last of some ascending sizes of a model that the budget allows.

        The costs of a size do not fall. `smallest` is what the first is called where
        not even that is within the budget, which is refused.
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

    def format(self, costs: Costs) -> str:
        """Costs in the unit that the limit was given in."""
        if self.flops is not None:
            return f"{costs.flops:,} FLOPs per {costs.per}"
        if self.bytes is not None:
            return f"{costs.parameters * BYTES[self.dtype]:,} bytes in {self.dtype}"
        return f"{costs.parameters:,} parameters"

    def arguments(self) -> dict[str, Any]:
        """The arguments of `IdeaPruneCallback` that it was made of."""
        values = dataclasses.asdict(self)
        return {f"target_{name}": value for name, value in values.items()}

    def _given(self) -> list[str]:
        names = ("parameters", "bytes", "flops")
        return [name for name in names if getattr(self, name) is not None]

    def allows(self, costs: Costs) -> bool:
        """bool, whether that is within the limit."""
        needed = {
            "parameters": costs.parameters,
            "bytes": costs.parameters * BYTES[self.dtype],
            "flops": costs.flops,
        }
        return all(needed[name] <= getattr(self, name) for name in self._given())


def plain_parameters(model: keras.Model) -> int:
    """Parameters of the model that is pruned, without scores, masks or a teacher."""
    return sum(math.prod(variable.shape) for variable in _plain_weights(model))


def costs_of(
    model: keras.Model, ffns: Sequence[FFN]
) -> Callable[[Sequence[int]], Costs]:
    """What a model costs once its FFNs are narrow: a function of as many widths.

    Of a `Distiller` its student counts.
    """
    wide = {id(variable): tuple(variable.shape) for variable in _plain_weights(model)}
    multiplied, per = uses_of_matrices(student_of(model))
    cuts = [(place, cut) for place, ffn in enumerate(ffns) for cut in ffn.held_cuts()]

    def costs(widths: Sequence[int]) -> Costs:
        shapes = {key: list(shape) for key, shape in wide.items()}
        for place, cut in cuts:  # two of a kernel between two FFNs
            shapes[id(cut.variable)][cut.axis] -= cut.lost(widths[place])
        return costs_of_shapes(shapes, multiplied, per)

    return costs


def costs_of_shapes(
    shapes: Mapping[int, Sequence[int]], multiplied: Mapping[int, int], per: str
) -> Costs:
    """The costs of weights, by their `id`s, some of which are used so many times."""
    counts = {key: math.prod(shape) for key, shape in shapes.items()}
    products = sum(count * multiplied.get(key, 0) for key, count in counts.items())
    return Costs(sum(counts.values()), 2 * products, per)


def check_round_to(round_to: int, widest: int) -> None:
    """Refuses a `round_to` of which no multiple is within the widest FFN."""
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
