"""The sizes of a run's model at the end, also when a budget says them."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import keras

from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.finding.budget import Costs
from keras_idea.finding.targets import sizes_at_one_ratio
from keras_idea.finding.work_count import matrix_weights
from keras_idea.groups.kinds import KINDS, KindName
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.config.sizes import Sizes

#: Makes a model of given sizes; values of its variables are not needed.
Outline = Callable[[Sizes], keras.Model]


def narrow_sizes(
    shape: ModelConfig, start: Sizes, outline: Outline, parts: int = 1
) -> Sizes:
    """The sizes of a run's model at the end, whichever way they were given.

    `start` are those of the wide model. `parts` devices share an FFN's neurons.

    Raises:
        ConfigError: if there is nothing to prune, or the budget cannot be met.
    """
    budget = shape.budget
    if not budget:
        return shape.sizes_at_end(start)
    kinds = shape.pruned_kinds
    if start.kv_groups == 1:
        raise ConfigError(
            "[model] There is one key/value head, of which none can go. Received: "
            f'{shape.describe("kinds")}. Delete "kv_groups" from `kinds`.'
        )
    measured = linear_in_sizes(outline, _costs, start, kinds)
    units = start.by_kind()

    def costs(sizes: Sequence[int]) -> Costs:
        given: dict[str, int] = dict(zip(kinds, sizes, strict=True))
        parameters, flops = measured(dataclasses.replace(start, **given))
        return Costs(parameters, flops)

    multiple = math.lcm(shape.round_to, parts)
    steps = [(units[kind], multiple if KINDS[kind].rounded else 1) for kind in kinds]
    wide = costs([units[kind] for kind in kinds])
    if budget.allows(wide):
        raise ConfigError(
            f"[model] The wide model is within {budget} already: it has "
            f"{wide.parameters:,} parameters and takes {wide.flops:,} FLOPs per token."
            f" Set a smaller budget{'.' if shape.preset else ', or a larger model.'}"
        )
    try:
        if kinds == ("neurons",):
            kept = [budget.widest(lambda width: costs([width]), *steps[0])]
        else:
            kept = budget.most(sizes_at_one_ratio(steps), costs, "size")
    except ArgumentError as error:
        raise ConfigError(f"[model] {error}") from None
    by_kind: dict[str, int] = dict(zip(kinds, kept, strict=True))
    return dataclasses.replace(start, **by_kind)


def linear_in_sizes(
    outline: Outline,
    measure: Callable[[keras.Model], Sequence[int]],
    start: Sizes,
    kinds: Sequence[KindName],
) -> Callable[[Sizes], list[int]]:
    """What models of any sizes cost, from one outline, and one more for each kind.

    Exact for what each unit of a kind adds equally much to.

    Args:
        outline: function of `Sizes` that makes a model.
        measure: function of a model that gives some whole numbers.
        start: `Sizes`, of which other kinds stay.
        kinds: list of the kinds whose units change.

    Returns:
        function of `Sizes` that gives those numbers.
    """
    ones: dict[str, int] = dict.fromkeys(kinds, 1)
    base = dataclasses.replace(start, **ones)
    least = measure(outline(base))
    more = {
        kind: measure(outline(dataclasses.replace(base, **{kind: 2}))) for kind in kinds
    }

    def measured(sizes: Sizes) -> list[int]:
        units = sizes.by_kind()
        return [
            first
            + sum((units[kind] - 1) * (two[i] - first) for kind, two in more.items())
            for i, first in enumerate(least)
        ]

    return measured


def _costs(model: keras.Model) -> tuple[int, int]:
    return model.count_params(), 2 * matrix_weights(model)
