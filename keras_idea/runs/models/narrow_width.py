"""How many neurons a run's FFNs have at the end, when a budget says it."""

import math
from collections.abc import Callable

import keras

from keras_idea.callbacks.budget import Costs
from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.monitor.work_count import matrix_weights
from keras_idea.runs.config.model_table import ModelConfig


def narrow_width(
    shape: ModelConfig,
    hidden_dim: int,
    outline: Callable[[int], keras.Model],
    parts: int = 1,
) -> int:
    """The neurons of each FFN at the end of a run, whichever way they were given.

    Args:
        shape: `ModelConfig`.
        hidden_dim: int, neurons of each FFN at the start.
        outline: function of a width that makes such a model; values are not needed.
        parts: int, devices that share an FFN's neurons. Default 1.

    Returns:
        int.

    Raises:
        ConfigError: if there is nothing to prune, or the budget cannot be met.
    """
    budget = shape.budget
    if not budget:
        return shape.width_at_end(hidden_dim)
    least, more = (_costs(outline(width)) for width in (1, 2))

    def costs(width: int) -> Costs:
        return Costs(
            least.parameters + (width - 1) * (more.parameters - least.parameters),
            least.flops + (width - 1) * (more.flops - least.flops),
        )

    round_to = math.lcm(shape.round_to, parts)
    try:
        width = budget.widest(costs, hidden_dim, round_to)
    except ArgumentError as error:
        raise ConfigError(f"[model] {error}") from None
    if width == hidden_dim:
        wide = costs(hidden_dim)
        raise ConfigError(
            f"[model] The wide model is within {budget} already: it has "
            f"{wide.parameters:,} parameters and takes {wide.flops:,} FLOPs per token."
            " Set a smaller budget"
            f"{'.' if shape.preset else ', or a larger `model.hidden_dim`.'}"
        )
    return width


def _costs(model: keras.Model) -> Costs:
    return Costs(model.count_params(), 2 * matrix_weights(model))
